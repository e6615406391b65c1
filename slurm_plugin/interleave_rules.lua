-- The rules for jobs of slurm-interleave: tables in, values out. No `slurm` global and no file is used here,
-- so plain Lua (5.1 to 5.4) can test them. job_submit.lua beside this file applies them.
local request = require("interleave_request")
local rules = {}

--- What a site may change, in its own job_submit.lua: interleave.settings.NAME = VALUE. `false`: all are allowed.
rules.settings = {
    -- The partitions of the interleaving nodes. Jobs that name none of them come into the first; jobs without a
    -- group are refused in all.
    partitions = { "interleave" },
    -- Users (uids) who may release held jobs and change where they run: root, and SlurmUser if it is another.
    operators = { [0] = true },
    -- Accounts and roles that may be interleaved, as in { "physics", "chemistry" }.
    accounts = false,
    roles = false,
    -- What a job may choose to move its state. The node's own one is among them, and others are refused there.
    backends = { "app_channel", "app_endpoint", "cuda", "sim", "noop" },
    -- Host memory in MiB added to --mem for each device, to hold its saved state: one number, or by type of GPU, as
    -- in { h200 = 143360, default = 81920 }. 0: nothing is added.
    host_memory_mib = 0,
}

local KNOWN = {}
for name in pairs(rules.settings) do
    KNOWN[#KNOWN + 1] = name
end
table.sort(KNOWN)

local GROUP_RULE =
    "1 to 63 characters: letters, digits, dot, underscore and dash, beginning with a letter or a digit"
local OPTION = "_SLURM_SPANK_OPTION_interleave_interleave_"
local PREFIX = "interleave:v1;"
-- What a user sees of a held job, where he has no comment of his own.
local EXPLANATION = "slurm-interleave: held until its devices are assigned, then released by itself; see AdminComment"
local MAX_WAIT_S = 366 * 86400
local MAX_SLOWDOWN = 1000

--- True for a group name. The same rule as GROUP_NAME in client/core/names.py and names.c.
function rules.group_name_ok(text)
    return #text <= 63 and text:find("^[A-Za-z0-9][A-Za-z0-9._-]*$") ~= nil
end

--- True if *list* (`false`: all) holds *name*.
local function allows(list, name)
    for _, one in ipairs(list or { name }) do
        if one == name then
            return true
        end
    end
    return false
end

--- The group that a job asks for in its comment, as clients do that cannot say it otherwise: interleave=NAME.
function rules.group_in_comment(comment)
    return ((" " .. tostring(comment or "") .. " "):match("[ ,;]interleave=([^ ,;]+)[ ,;]"))
end

local NAMES = {
    [OPTION .. "group"] = "option",
    INTERLEAVE_GROUP = "group",
    INTERLEAVE_GPUS = "gpus",
    INTERLEAVE_ROLE = "role",
    INTERLEAVE_BACKEND = "backend",
    INTERLEAVE_MAX_WAIT = "max_wait",
    INTERLEAVE_PROFILE = "profile",
    INTERLEAVE_MAX_SLOWDOWN = "max_slowdown",
    INTERLEAVE_SRUN = "srun",
}

--- What a job asks for as {group, gpus, role, backend, max_wait, profile, max_slowdown, srun}, texts not yet checked,
-- or nil; and a reason where it contradicts itself. The values are the user's text: a modified client may send
-- anything. Slurm's table starts at 0.
function rules.asked(spank_job_env, comment)
    local found, without = {}, nil
    for _, entry in pairs(spank_job_env or {}) do
        local name, value = tostring(entry):match("^([^=]*)=(.*)$")
        if NAMES[name] then
            found[NAMES[name]] = value
        elseif name and name:sub(1, #OPTION) == OPTION then
            without = name:sub(#OPTION + 1):gsub("_", "-")
        end
    end
    local group = found.group or found.option or rules.group_in_comment(comment)
    if group == nil and without then
        return nil, "--interleave-" .. without .. " needs --interleave-group=NAME"
    elseif group == nil or group:lower() == "none" then
        return nil
    elseif found.option and found.option ~= group then
        return nil, "--interleave-group and the exported group are not the same"
    end
    found.group, found.srun = group, found.srun ~= nil
    return found
end

--- *text* of a user, fit for a message.
local function shown(text)
    return (text:sub(1, 64):gsub("[^ -~]", "?"))
end

local function refused_name(what, text, list)
    if not rules.group_name_ok(text) then
        return ("%s name '%s' is not allowed; allowed are %s"):format(what, shown(text), GROUP_RULE)
    elseif not allows(list, text) then
        return ("%s '%s' is not allowed on this cluster; allowed are %s"):format(what, text, table.concat(list, ", "))
    end
    return nil
end

local function refused_backend(text)
    for name in (text .. "+"):gmatch("(.-)[+]") do
        if not allows(rules.settings.backends, name) then
            local known = table.concat(rules.settings.backends or {}, ", ")
            return ("backend '%s' is not known on this cluster; known are %s"):format(shown(name), known)
        end
    end
    return nil
end

local function refused_wait(text)
    local seconds = text:find("^%d%d?%d?%d?%d?%d?%d?%d?$") and tonumber(text)
    if not seconds or seconds < 1 or seconds > MAX_WAIT_S then
        return ("INTERLEAVE_MAX_WAIT is '%s'; it takes seconds, 1 to %d"):format(shown(text), MAX_WAIT_S)
    end
    return nil
end

local function refused_slowdown(text)
    local percent = text:find("^%d%d?%d?%d?$") and tonumber(text)
    if not percent or percent > MAX_SLOWDOWN then
        return ("INTERLEAVE_MAX_SLOWDOWN is '%s'; it takes percent, 0 to %d"):format(shown(text), MAX_SLOWDOWN)
    end
    return nil
end

--- A setting that there is not, as a reason; or nil.
local function mistaken_setting()
    for name in pairs(rules.settings) do
        if not allows(KNOWN, name) then
            return ("interleave.settings.%s is not known; known are %s; tell the administrator"):format(
                tostring(name), table.concat(KNOWN, ", "))
        end
    end
    return nil
end

local function refused_account(job, list)
    local account = list and (job.account or job.default_account or "")
    if list and not allows(list, account) then
        return ("account '%s' is not allowed to interleave; allowed are %s"):format(account, table.concat(list, ", "))
    end
    return nil
end

-- Such a group was found for its members: who names it would share with them past all that was asked of the finding.
local function refused_found(group)
    return group:find("^auto%-") and "groups whose names begin with auto- are found; ask for --interleave-group=auto"
        or nil
end

--- Why a *job* that *asked* for a group is refused for what it asked, or nil.
local function refused(job, asked)
    return mistaken_setting()
        or refused_account(job, rules.settings.accounts)
        or refused_name("group", asked.group, false)
        or refused_found(asked.group)
        or asked.role and refused_name("role", asked.role, rules.settings.roles)
        or asked.backend and refused_backend(asked.backend)
        or asked.max_wait and refused_wait(asked.max_wait)
        or asked.profile and refused_name("profile", asked.profile, false)
        or asked.max_slowdown and refused_slowdown(asked.max_slowdown)
        or nil
end

--- The first of our partitions in the comma separated list of *partitions*, or nil.
local function our_partition(partitions)
    for name in tostring(partitions or ""):gmatch("[^,]+") do
        if allows(rules.settings.partitions, name) then
            return name
        end
    end
    return nil
end

local function note(asked, made)
    local fields = { "group=" .. asked.group, ("nodes=%d"):format(made.nodes), ("devices=%d"):format(made.devices) }
    fields[#fields + 1] = "role=" .. (asked.role or "")
    for _, name in ipairs({ "backend", "max_wait", "profile", "max_slowdown" }) do
        fields[#fields + 1] = asked[name] and name .. "=" .. asked[name]
    end
    fields[#fields + 1] = made.gpu_type and "gpu_type=" .. made.gpu_type
    fields[#fields + 1] = "state=held"
    return PREFIX .. table.concat(fields, ";")
end

--- What to change in a job that *asked* for a group, as a table of its fields; or nil and why it is refused.
function rules.changes(job, asked)
    local reason = refused(job, asked)
    if reason then
        return nil, reason
    end
    local made, memory
    made, reason = request.of(job, asked)
    if not made then
        return nil, reason
    end
    memory, reason = request.memory_of(job, made, rules.settings.host_memory_mib)
    if reason then
        return nil, reason
    end
    return {
        partition = our_partition(job.partition) or rules.settings.partitions[1],
        priority = 0, -- held, until the placement helper has found its devices
        admin_comment = note(asked, made),
        comment = (job.comment or "") == "" and EXPLANATION or nil,
        min_nodes = made.nodes,
        max_nodes = made.nodes,
        tres_per_node = "",
        tres_per_job = "",
        tres_per_task = made.rest_task,
        tres_bind = "", -- from 24.11, --gpus-per-task leaves one behind
        min_mem_per_node = memory,
    }
end

--- Why a job without a group is refused, or nil. *part_list* is Slurm's table of the user's partitions.
function rules.refuse_stranger(job, part_list)
    local found = our_partition(job.partition)
    if (job.partition or "") == "" then
        for _, name in ipairs(rules.settings.partitions) do
            local own = (part_list or {})[name]
            found = own ~= nil and own.flag_default == 1 and name or found
        end
    end
    return found and "partition " .. found .. " takes jobs with --interleave-group=NAME alone" or nil
end

--- Fields that decide where an interleaved job runs; the placement helper sets them.
local PLACED = {
    { "partition", "the partition" },
    { "tres_per_node", "the GRES" },
    { "tres_per_job", "--gpus" },
    { "tres_per_task", "--gpus-per-task" },
    { "tres_per_socket", "--gpus-per-socket" },
    { "req_nodes", "the nodes" },
    { "exc_nodes", "the excluded nodes" }, -- the pin of a heterogeneous job's first component
    { "min_nodes", "the number of nodes" },
    { "max_nodes", "the number of nodes" },
    { "admin_comment", "the admin comment" },
}

--- True where a change names *field*, be it to make it empty: what it leaves as it is is nil, or NO_VAL.
local function changed(job, field)
    return job[field] ~= nil and job[field] ~= request.NO_VAL
end

--- Why a job's memory may not become what the change *job* says, or nil: its saved state must fit.
local function refused_memory(job, record)
    local wanted, has = request.given(job.min_mem_per_node, 2 ^ 53), request.given(record.min_mem_per_node, 2 ^ 53)
    if has and (wanted and wanted < has or request.given(job.min_mem_per_cpu, 2 ^ 53)) then
        return ("the memory of an interleaved job can only grow; it has %d MiB"):format(has)
    end
    return nil
end

--- Why user *uid* may not make the change *job* to the job *record*, or nil.
function rules.refuse_change(job, record, uid)
    if rules.settings.operators[uid] then
        return nil
    end
    local noted = tostring(record.admin_comment or "")
    if noted:sub(1, #PREFIX) ~= PREFIX then
        return rules.refuse_stranger(job)
    end
    for _, case in ipairs(PLACED) do
        if changed(job, case[1]) then
            return case[2] .. " of an interleaved job cannot be changed"
        end
    end
    local reason = refused_memory(job, record) or request.refused_dependency(job)
    if reason then
        return reason
    end
    if noted:find(";state=held", 1, true) and type(job.priority) == "number" and job.priority ~= request.NO_VAL then
        return "it is held until its devices are assigned; it is released by itself, and can be held after that"
    end
    return nil
end

return rules
