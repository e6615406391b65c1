-- slurm-interleave in job_submit/lua. Slurm takes one script a cluster: a site that has one adds the part between
-- the two marks to its own, and calls interleave.submit and interleave.modify as the functions below do.
-- No job is touched that did not give --interleave-group; one that did is refused where anything goes wrong.

-- interleave: begin
local interleave = {}
do
    local folder = (debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "/etc/slurm")
    package.path = folder .. "/?.lua;" .. package.path
    local loaded, rules = pcall(require, "interleave_rules")
    interleave.settings = loaded and rules.settings or { operators = {} }

    --- True if any part of the job asks for a group, in whatever form; its comment counts where the options say none.
    local function asks(job_desc)
        local silent = true
        for _, entry in pairs(job_desc.spank_job_env or {}) do
            local name, value = tostring(entry):match("^([^=]*)=(.*)$")
            if name == "INTERLEAVE_GROUP" or name == "_SLURM_SPANK_OPTION_interleave_interleave_group" then
                silent = false
                if value:lower() ~= "none" then
                    return true
                end
            end
        end
        local said = (" " .. tostring(job_desc.comment or "")):match("[ ,;]interleave=([^ ,;]+)")
        return silent and said ~= nil and said:lower() ~= "none"
    end

    --- True for root and for the site's operators, SlurmUser among them, whatever has become of the settings.
    local function operates(uid)
        local operators = type(interleave.settings) == "table" and interleave.settings.operators
        return uid == 0 or type(operators) == "table" and operators[uid] == true
    end

    local function refuse(reason, code)
        slurm.log_user("interleave: %s", reason)
        return code or slurm.ERROR
    end

    --- pcall, but for the rules that could not be loaded.
    local function guarded(decide, ...)
        if not loaded then
            return false, rules
        end
        return pcall(decide, ...)
    end

    local function submit(job_desc, part_list)
        local asked, reason = rules.asked(job_desc.spank_job_env, job_desc.comment)
        if reason then
            return reason
        elseif not asked then
            return rules.refuse_stranger(job_desc, part_list)
        end
        local changes
        changes, reason = rules.changes(job_desc, asked)
        for field, value in pairs(changes or {}) do
            job_desc[field] = value
        end
        return reason
    end

    local function modify(job_desc, job_rec, modify_uid)
        return rules.refuse_change(job_desc, job_rec, modify_uid)
    end

    --- slurm.SUCCESS, or slurm.ERROR with the reason told to the user.
    function interleave.submit(job_desc, part_list)
        local ok, reason = guarded(submit, job_desc, part_list)
        if ok then
            return reason and refuse(reason) or slurm.SUCCESS
        end
        slurm.log_error("interleave: job_submit: %s", tostring(reason))
        if not asks(job_desc) then
            return slurm.SUCCESS
        end
        return refuse("the rules for interleaved jobs failed; see slurmctld's log")
    end

    --- slurm.SUCCESS, or an error code for a change of an interleaved job that its user may not make.
    function interleave.modify(job_desc, job_rec, modify_uid)
        local ok, reason = guarded(modify, job_desc, job_rec, modify_uid)
        if ok then
            return reason and refuse(reason, slurm.ESLURM_ACCESS_DENIED) or slurm.SUCCESS
        end
        slurm.log_error("interleave: job_modify: %s", tostring(reason))
        if operates(modify_uid) or tostring(job_rec.admin_comment or ""):sub(1, 14) ~= "interleave:v1;" then
            return slurm.SUCCESS
        end
        return refuse("the rules for interleaved jobs failed; see slurmctld's log", slurm.ESLURM_ACCESS_DENIED)
    end
end
-- interleave: end

function slurm_job_submit(job_desc, part_list, submit_uid)
    return interleave.submit(job_desc, part_list)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return interleave.modify(job_desc, job_rec, modify_uid)
end

return slurm.SUCCESS
