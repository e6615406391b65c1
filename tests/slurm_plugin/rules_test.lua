-- Tests of slurm_plugin/interleave_rules.lua and job_submit.lua in plain Lua: `lua5.3 rules_test.lua "NAME"`.
-- test_rules.py runs each of them as a test of its own.
local rules = require("interleave_rules")
local tests = {}

local OPTION = "_SLURM_SPANK_OPTION_interleave_interleave_group="
local NO_VAL, NO_VAL16 = 4294967294, 65534

--- A job as Slurm hands it over: numbers that nobody gave are NO_VAL, texts are nil.
local function job(fields)
    local made = {
        min_nodes = NO_VAL, max_nodes = NO_VAL, num_tasks = NO_VAL, ntasks_per_node = NO_VAL16,
        ntasks_per_tres = NO_VAL16, shared = NO_VAL16, het_job_offset = NO_VAL, priority = NO_VAL,
    }
    for key, value in pairs(fields) do
        made[key] = value
    end
    return made
end

local function equal(actual, expected, what)
    if actual ~= expected then
        error(("%s: got %s, expected %s"):format(what or "value", tostring(actual), tostring(expected)), 2)
    end
end

local function contains(text, part)
    if type(text) ~= "string" or not text:find(part, 1, true) then
        error(("got %s, expected it to hold %q"):format(tostring(text), part), 2)
    end
end

local function changes(fields, asked)
    return rules.changes(job(fields), asked or { group = "demo" })
end

local function comment(fields, asked)
    local made, reason = changes(fields, asked)
    return made and made.admin_comment or reason
end

tests["the option in Slurm's table that starts at 0 is found"] = function()
    local env = { [0] = OPTION .. "demo", [1] = "INTERLEAVE_GROUP=demo" }

    equal(rules.asked(env).group, "demo")
    equal(rules.asked({ [0] = OPTION .. "rest" }).group, "rest")
end

tests["a job without the option, or with none, asked for nothing"] = function()
    equal(rules.asked(nil), nil)
    equal(rules.asked({ [0] = "OTHER=1", [1] = "XINTERLEAVE_GROUP=demo" }), nil)
    equal(rules.asked({ [0] = OPTION .. "none" }), nil)
    equal(rules.asked({ [0] = OPTION .. "None" }), nil)
end

tests["a forged group beside the option is refused"] = function()
    local asked, reason = rules.asked({ [0] = OPTION .. "mine", [1] = "INTERLEAVE_GROUP=theirs" })

    equal(asked, nil)
    contains(reason, "not the same")
end

tests["each way to ask for GPUs becomes nodes and devices on each node"] = function()
    local function note(nodes, devices)
        return ("interleave:v1;group=demo;nodes=%d;devices=%d;role=;state=held"):format(nodes, devices)
    end

    equal(comment({ tres_per_node = "gres:gpu:2" }), note(1, 2))
    equal(comment({ tres_per_node = "gres/gpu:2" }), note(1, 2))
    equal(comment({ tres_per_node = "gres:gpu" }), note(1, 1))
    equal(comment({ tres_per_node = "gres:gpu:h200" }), note(1, 1))
    equal(comment({ tres_per_node = "gres/gpu:h200:8", min_nodes = 4 }), note(4, 8))
    equal(comment({ tres_per_node = "gres/gpu=2" }), note(1, 2))
    equal(comment({ tres_per_node = "gres:gpu:a:1,gres:gpu:b:2" }), note(1, 3))
    equal(comment({ tres_per_job = "gres:gpu:8", min_nodes = 2 }), note(2, 4))
    equal(comment({ tres_per_task = "gres:gpu:1", num_tasks = 4 }), note(1, 4))
    equal(comment({ tres_per_task = "gres:gpu:1", num_tasks = 4, min_nodes = 2 }), note(2, 2))
    equal(comment({ tres_per_task = "gres:gpu:1", num_tasks = 4, ntasks_per_node = 2 }), note(2, 2))
    equal(comment({ tres_per_task = "gres:gpu:2", ntasks_per_node = 2, min_nodes = 3 }), note(3, 4))
    equal(comment({ tres_per_task = "cpu:4,gres/gpu:1" }), note(1, 1))
end

tests["an accepted job is held in our partition and asks for no GPU any more"] = function()
    local made = changes({ tres_per_node = "gres:gpu:2", partition = "batch", min_nodes = 2 })

    equal(made.priority, 0)
    equal(made.partition, "interleave")
    equal(made.tres_per_node, "")
    equal(made.tres_per_job, "")
    equal(made.tres_per_task, "")
    equal(made.tres_bind, "")
    equal(made.min_nodes, 2)
    equal(made.max_nodes, 2)
    equal(made.min_mem_per_node, nil)
end

tests["CPUs per task stay when the GPUs per task are taken out"] = function()
    equal(changes({ tres_per_task = "cpu=4,gres/gpu=1" }).tres_per_task, "cpu=4")
end

tests["a job that asks for no GPU is refused with what to add"] = function()
    contains(comment({}), "--gpus-per-node=COUNT")
    contains(comment({ tres_per_node = "gres:gpu:0" }), "no GPU")
end

tests["GPUs that the nodes cannot share evenly are refused"] = function()
    contains(comment({ tres_per_job = "gres:gpu:3", min_nodes = 2 }), "--gpus is 3, which 2 nodes")
end

tests["what cannot be interleaved is refused with what to use instead"] = function()
    local gpu = "gres:gpu:1"

    contains(comment({ tres_per_socket = gpu }), "--gpus-per-socket")
    contains(comment({ tres_per_node = gpu, mem_per_tres = "gres:gpu:100" }), "use --mem")
    contains(comment({ tres_per_node = gpu, cpus_per_tres = "gres:gpu:2" }), "use --cpus-per-task")
    contains(comment({ tres_per_node = gpu, ntasks_per_tres = 1 }), "--ntasks-per-gpu")
    contains(comment({ tres_per_node = gpu, shared = 0 }), "--exclusive")
    contains(comment({ tres_per_node = gpu, priority = 0 }), "--begin=TIME")
    contains(comment({ tres_per_node = gpu, array_inx = "1-3" }), "job arrays")
    contains(comment({ tres_per_node = gpu, het_job_offset = 0 }), "heterogeneous")
    contains(comment({ tres_per_node = "gres:gpu:1,gres:ilv:g0:1" }), "gres:ilv:g0:1")
    contains(comment({ tres_per_task = "gres/gpu:1,gres/shard:1" }), "gres/shard:1")
    contains(comment({ tres_per_node = "gres:gpu:a:b:c" }), "not understood")
    equal(comment({ tres_per_node = gpu, shared = 1 }):sub(1, 14), "interleave:v1;")
end

tests["a bad group name is refused, whoever sent it"] = function()
    for _, name in ipairs({ "", "a b", "-x", "a;state=placed", "a\nb", ("a"):rep(64), "\195\169" }) do
        contains(comment({ tres_per_node = "gres:gpu:1" }, { group = name }), "is not allowed")
    end
end

tests["srun outside a job gives its GPUs by our own option"] = function()
    local asked = rules.asked({ [0] = "INTERLEAVE_GROUP=demo", [1] = "INTERLEAVE_GPUS=2", [2] = "INTERLEAVE_SRUN=1" })

    contains(comment({}, asked), "devices=2;")
    contains(comment({ tres_per_job = "gres:gpu:1" }, { group = "demo", srun = true }), "--interleave-gpus=COUNT")
    contains(comment({ tres_per_job = "gres:gpu:1" }, asked), "give one of them")
    contains(comment({}, { group = "demo", gpus = "0" }), "1 to 9999")
    contains(comment({}, { group = "demo", gpus = "1;x" }), "1 to 9999")
end

tests["host memory for the saved state is added to --mem, which is then needed"] = function()
    rules.settings.host_memory_mib = 1000

    equal(changes({ tres_per_node = "gres:gpu:2", min_mem_per_node = 500 }).min_mem_per_node, 2500)
    contains(comment({ tres_per_node = "gres:gpu:2" }), "give --mem")
end

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
end

tests["its user cannot change where an interleaved job runs"] = function()
    for field, word in pairs({
        admin_comment = "admin comment", partition = "partition", tres_per_node = "GRES", req_nodes = "nodes",
        tres_per_job = "--gpus", tres_per_task = "--gpus-per-task",
    }) do
        contains(rules.refuse_change(job({ [field] = "x" }), PLACED, USER), word)
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

--- What job_submit.lua does with *submitted*: the return code, what the user is told, and what is logged.
local function submit(submitted, broken)
    local told, logged
    slurm = {
        SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002,
        log_user = function(form, ...) told = form:format(...) end,
        log_error = function(form, ...) logged = form:format(...) end,
    }
    package.loaded.interleave_rules = nil
    package.preload.interleave_rules = broken and function() error("broken") end or nil
    dofile(os.getenv("JOB_SUBMIT"))
    return slurm_job_submit(submitted, {}, USER), told, logged
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

    equal(submit(job({ spank_job_env = { [0] = OPTION .. "none" } }), true), 0)
    equal(submit(job({}), true), 0)
end

tests["an error while the rules run refuses a job that asked"] = function()
    local code = submit(job({ spank_job_env = { [0] = "INTERLEAVE_GROUP=demo" }, tres_per_node = {} }))

    equal(code, -1)
end

assert(tests[arg[1]], "no such test")()
