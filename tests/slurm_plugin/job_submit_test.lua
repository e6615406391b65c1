-- Tests of who may enter and change what, and of job_submit.lua, in plain Lua; see rules_test.lua.
local rules = require("interleave_rules")
local shared = require("lua_tests")
local job, equal, contains, OPTION = shared.job, shared.equal, shared.contains, shared.OPTION
local tests = {}

tests["a job without a group is refused in our partition alone"] = function()
    contains(rules.refuse_stranger(job({ partition = "interleave" })), "--interleave-group=NAME")
    contains(rules.refuse_stranger(job({ partition = "batch,interleave" })), "partition interleave")
    equal(rules.refuse_stranger(job({ partition = "batch" })), nil)
    equal(rules.refuse_stranger(job({ partition = "interleave2" })), nil)
    equal(rules.refuse_stranger(job({}), { batch = { flag_default = 1 } }), nil)
    contains(rules.refuse_stranger(job({}), { interleave = { flag_default = 1 } }), "partition interleave")
end

local HELD = { admin_comment = "interleave:v1;group=demo;nodes=1;devices=1;role=;state=held" }
local PLACED = { admin_comment = "interleave:v1;group=demo;nodes=1;devices=1;role=;lane=ilv;indices=0;state=placed" }
local USER = 1000

tests["its user cannot release a job that waits for its devices, but can hold and release it later"] = function()
    contains(rules.refuse_change(job({ priority = 4294967295 }), HELD, USER), "released by itself")
    contains(rules.refuse_change(job({ priority = 5 }), HELD, USER), "released by itself")
    contains(rules.refuse_change(job({ priority = 0 }), HELD, USER), "can be held after that")
    equal(rules.refuse_change(job({ priority = 0 }), PLACED, USER), nil)
    equal(rules.refuse_change(job({ priority = 4294967295 }), PLACED, USER), nil)
    equal(rules.refuse_change(job({ name = "x" }), HELD, USER), nil)
    equal(rules.refuse_change(job({ dependency = "afterok:3" }), HELD, USER), nil)
    contains(rules.refuse_change(job({ dependency = "expand:3" }), HELD, USER), "--dependency=expand")
end

tests["its user cannot change where an interleaved job runs"] = function()
    for field, word in pairs({
        admin_comment = "admin comment", partition = "partition", tres_per_node = "GRES", req_nodes = "nodes",
        exc_nodes = "excluded nodes", tres_per_job = "--gpus", tres_per_task = "--gpus-per-task",
        tres_per_socket = "--gpus-per-socket",
    }) do
        for _, record in ipairs({ HELD, PLACED }) do
            contains(rules.refuse_change(job({ [field] = "x" }), record, USER), word)
            contains(rules.refuse_change(job({ [field] = "" }), record, USER), word)
        end
    end
end

tests["its user cannot change on how many nodes an interleaved job runs"] = function()
    local INFINITE = 4294967295
    for _, change in ipairs({ { min_nodes = 2, max_nodes = 2 }, { min_nodes = 0 }, { max_nodes = INFINITE } }) do
        contains(rules.refuse_change(job(change), HELD, USER), "the number of nodes")
        contains(rules.refuse_change(job(change), PLACED, USER), "the number of nodes")
        equal(rules.refuse_change(job(change), PLACED, 0), nil)
        equal(rules.refuse_change(job(change), {}, USER), nil)
    end
end

tests["an operator may change all of an interleaved job"] = function()
    local all = job({ priority = 4294967295, partition = "x", req_nodes = "n1", tres_per_node = "gres:ilv:g0:1" })

    equal(rules.refuse_change(all, HELD, 0), nil)
end

tests["a stranger's job is changed freely, but not into our partition"] = function()
    local stranger = { admin_comment = nil }

    equal(rules.refuse_change(job({ priority = 4294967295, partition = "batch" }), stranger, USER), nil)
    contains(rules.refuse_change(job({ partition = "interleave" }), stranger, USER), "--interleave-group=NAME")
end

--- Load job_submit.lua as slurmctld does, with the *site*'s lines; return what gives the last words to user and log.
local function load_script(broken, site)
    local told, logged
    slurm = {
        SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002,
        log_user = function(form, ...) told = form:format(...) end,
        log_error = function(form, ...) logged = form:format(...) end,
    }
    package.loaded.interleave_rules, package.loaded.interleave_request = nil, nil
    package.preload.interleave_rules = broken and function() error("broken") end or nil
    local path = os.getenv("JOB_SUBMIT")
    local file = assert(io.open(path))
    local text = file:read("*a"):gsub("%-%- interleave: end\n", "%0" .. (site or "") .. "\n")
    file:close()
    assert((loadstring or load)(text, "@" .. path))()
    return function() return told, logged end
end

--- What job_submit.lua does with *submitted*: the return code, what the user is told, and what is logged.
local function submit(submitted, broken)
    local words = load_script(broken)
    return slurm_job_submit(submitted, {}, USER), words()
end

--- The same for a change by *uid*.
local function modify(change, record, uid, broken, site)
    local words = load_script(broken, site)
    return slurm_job_modify(job(change), record, {}, uid), words()
end

tests["the adapter writes the changes into the job"] = function()
    local submitted = job({ spank_job_env = { [0] = OPTION .. "demo" }, tres_per_node = "gres:gpu:1" })

    equal(submit(submitted), 0)

    equal(submitted.priority, 0)
    equal(submitted.tres_per_node, "")
    contains(submitted.admin_comment, "group=demo;")
end

tests["the adapter refuses with the reason and changes nothing"] = function()
    local submitted = job({ spank_job_env = { [0] = OPTION .. "demo" } })

    local code, told = submit(submitted)

    equal(code, -1)
    contains(told, "interleave: no GPU is asked for")
    equal(submitted.admin_comment, nil)
end

tests["the adapter leaves a job that did not ask untouched"] = function()
    local submitted = setmetatable({}, { __newindex = function() error("touched") end })

    local code, told, logged = submit(submitted)

    equal(code, 0)
    equal(told, nil)
    equal(logged, nil)
end

tests["with broken rules, jobs that asked are refused and all others pass"] = function()
    local code, told, logged = submit(job({ spank_job_env = { [0] = OPTION .. "demo" } }), true)
    equal(code, -1)
    contains(told, "slurmctld's log")
    contains(logged, "broken")

    equal(submit(job({ comment = "interleave=demo" }), true), -1)
    equal(submit(job({ comment = "not interleaved" }), true), 0)
    equal(submit(job({ comment = "interleave=none" }), true), 0)
    equal(submit(job({ comment = "run 7,interleave=None;x" }), true), 0)
    equal(submit(job({ spank_job_env = { [0] = OPTION .. "none" }, comment = "interleave=demo" }), true), 0)
    equal(submit(job({ spank_job_env = { [0] = OPTION .. "none" } }), true), 0)
    equal(submit(job({}), true), 0)
end

local SLURM_USER = 997
local SITE = "interleave.settings.operators[997] = true"

tests["the adapter tells a user why a change is refused, and lets operators make it"] = function()
    local code, told = modify({ priority = 5 }, HELD, USER, false, SITE)
    equal(code, 2002)
    contains(told, "interleave: it is held until")

    equal(modify({ priority = 5 }, HELD, SLURM_USER, false, SITE), 0)
    equal(modify({ name = "x" }, HELD, USER), 0)
end

tests["with broken rules, only operators change an interleaved job, and all others are changed as before"] = function()
    for _, broken in ipairs({ "load", "run", "settings" }) do
        local site = SITE
        if broken == "run" then
            site = SITE .. "; require('interleave_rules').refuse_change = function() error('broken') end"
        elseif broken == "settings" then
            site = "interleave.settings.operators = 997"
        end
        for _, record in ipairs({ HELD, PLACED }) do
            local code, told, logged = modify({ priority = 4294967295 }, record, USER, broken == "load", site)
            equal(code, 2002, broken)
            contains(told, "slurmctld's log")
            contains(logged, "job_modify")
            equal(modify({ priority = 4294967295 }, record, 0, broken == "load", site), 0, broken)
            equal(modify({ priority = 4294967295 }, record, SLURM_USER, broken == "load", site),
                broken == "settings" and 2002 or 0, broken)
        end
        for _, stranger in ipairs({ {}, { admin_comment = "" }, { admin_comment = "of interleave:v1;" } }) do
            equal(modify({ priority = 4294967295 }, stranger, USER, broken == "load", site), 0, broken)
        end
    end
end

tests["an error while the rules run refuses a job that asked"] = function()
    local code = submit(job({ spank_job_env = { [0] = "INTERLEAVE_GROUP=demo" }, tres_per_node = {} }))

    equal(code, -1)
end

tests["the memory of an interleaved job can grow, but not shrink"] = function()
    local NOTHING = 18446744073709551614
    local record = { admin_comment = "interleave:v1;group=g;nodes=1;devices=1;role=;state=placed", min_mem_per_node = 900 }
    local function refusal(fields)
        fields.min_mem_per_node = fields.min_mem_per_node or NOTHING
        fields.min_mem_per_cpu = fields.min_mem_per_cpu or NOTHING
        return rules.refuse_change(job(fields), record, 1000)
    end

    contains(refusal({ min_mem_per_node = 899 }), "can only grow; it has 900 MiB")
    contains(refusal({ min_mem_per_node = 0 }), "can only grow")
    contains(refusal({ min_mem_per_cpu = 5 }), "can only grow")
    equal(refusal({ min_mem_per_node = 901 }), nil)
    equal(refusal({ name = "x" }), nil)
    record.min_mem_per_node = nil
    equal(refusal({ min_mem_per_node = 5 }), nil)
    record.admin_comment = nil
    equal(rules.refuse_change(job({ min_mem_per_node = 1 }), { min_mem_per_node = 900 }, 1000), nil)
end

assert(tests[arg[1]], "no such test")()
