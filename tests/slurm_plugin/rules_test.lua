-- Tests of interleave_rules.lua in plain Lua: `lua5.3 rules_test.lua "NAME"`. test_rules.py runs each of them as a
-- test of its own, and those of job_submit_test.lua.
local rules = require("interleave_rules")
local shared = require("lua_tests")
local job, equal, contains, OPTION = shared.job, shared.equal, shared.contains, shared.OPTION
local tests = {}

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
    equal(comment({ tres_per_node = "gres/gpu=2" }), note(1, 2))
    equal(comment({ tres_per_node = "gres:gpu:1,gres:gpu:2" }), note(1, 3))
    equal(comment({ tres_per_job = "gres:gpu:8", min_nodes = 2 }), note(2, 4))
    equal(comment({ tres_per_task = "gres:gpu:1", num_tasks = 4 }), note(1, 4))
    equal(comment({ tres_per_task = "gres:gpu:1", num_tasks = 4, min_nodes = 2 }), note(2, 2))
    equal(comment({ tres_per_task = "gres:gpu:1", num_tasks = 4, ntasks_per_node = 2 }), note(2, 2))
    equal(comment({ tres_per_task = "gres:gpu:2", ntasks_per_node = 2, min_nodes = 3 }), note(3, 4))
    equal(comment({ tres_per_task = "cpu:4,gres/gpu:1" }), note(1, 1))
end

tests["nobody can name a group that was found for others"] = function()
    contains(comment({ tres_per_node = "gres:gpu:1" }, { group = "auto-4711" }), "ask for --interleave-group=auto")
    for _, good in ipairs({ "auto", "autos", "auto.1" }) do
        contains(comment({ tres_per_node = "gres:gpu:1" }, { group = good }), ";state=held")
    end
end

tests["the type of GPU that a job asks for is noted, and one name it must be"] = function()
    equal(comment({ tres_per_node = "gres:gpu:h200" }),
        "interleave:v1;group=demo;nodes=1;devices=1;role=;gpu_type=h200;state=held")
    contains(comment({ tres_per_job = "gres/gpu:a100-80:8", min_nodes = 4 }), "devices=2;role=;gpu_type=a100-80;state")
    contains(comment({ tres_per_node = "gres:gpu:a:1,gres:gpu:b:2" }), "one type")
    for _, bad in ipairs({ "a;b", "a b", "-x", "é" }) do
        contains(comment({ tres_per_node = "gres:gpu:" .. bad .. ":1" }), "is not a name")
    end
end

tests["features are names that are all there, or one of them; more than that is refused"] = function()
    local function with(features)
        return comment({ tres_per_node = "gres:gpu:1", features = features })
    end

    for _, good in ipairs({ "h200", "h200&ib-ndr", "a100|h200|h100" }) do
        contains(with(good), ";state=held")
    end
    for _, bad in ipairs({ "a&b|c", "[a|b]", "a*2", "(a|b)&c" }) do
        contains(with(bad), "--constraint")
    end
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
    contains(made.comment, "held until its devices are assigned")
    equal(rules.group_in_comment(made.comment), nil)
    equal(changes({ tres_per_node = "gres:gpu:2", comment = "mine" }).comment, nil)
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
    contains(comment({ tres_per_node = gpu, dependency = "afterok:3,expand:4" }), "in one job")
    contains(comment({ tres_per_node = "gres:gpu:1,gres:ilv:g0:1" }), "gres:ilv:g0:1")
    contains(comment({ tres_per_task = "gres/gpu:1,gres/shard:1" }), "gres/shard:1")
    contains(comment({ tres_per_node = "gres:gpu:a:b:c" }), "not understood")
    equal(comment({ tres_per_node = gpu, shared = 1 }):sub(1, 14), "interleave:v1;")
end

tests["job arrays and the parts of heterogeneous jobs are held like other jobs"] = function()
    for _, fields in ipairs({ { array_inx = "1-3%2" }, { het_job_offset = 0 }, { het_job_offset = 1 } }) do
        fields.tres_per_node = "gres:gpu:1"
        equal(changes(fields).priority, 0)
    end
end

tests["role, backend and longest wait are noted for the placement helper"] = function()
    local asked = rules.asked({
        [0] = "INTERLEAVE_GROUP=demo", [1] = "INTERLEAVE_ROLE=trainer", [2] = "INTERLEAVE_BACKEND=app_channel+cuda",
        [3] = "INTERLEAVE_MAX_WAIT=600", [4] = OPTION:gsub("group=", "role=trainer"),
    })

    equal(comment({ tres_per_node = "gres:gpu:1" }, asked),
        "interleave:v1;group=demo;nodes=1;devices=1;role=trainer;backend=app_channel+cuda;max_wait=600;state=held")
end

tests["a profile and how much slower the job may become are noted, and refused where they are none"] = function()
    local gpu = { tres_per_node = "gres:gpu:1" }
    local asked = rules.asked({
        [0] = "INTERLEAVE_GROUP=auto", [1] = "INTERLEAVE_PROFILE=math-7B", [2] = "INTERLEAVE_MAX_SLOWDOWN=0",
        [3] = OPTION:gsub("group=", "max_slowdown=0%%"),
    })

    contains(comment(gpu, asked), ";role=;profile=math-7B;max_slowdown=0;state=held")
    for _, bad in ipairs({ "", "a b", "a;state=placed", "ml/math" }) do
        contains(comment(gpu, { group = "auto", profile = bad }), "profile name '")
    end
    for _, bad in ipairs({ "", "-1", "1001", "10%", "1.5", "0x10", "a;state=placed" }) do
        contains(comment(gpu, { group = "auto", max_slowdown = bad }), "percent, 0 to 1000")
    end
    equal(select(2, rules.asked({ [0] = OPTION:gsub("group=", "profile=x") })),
        "--interleave-profile needs --interleave-group=NAME")
end

tests["a role, backend or longest wait that is none is refused, whoever sent it"] = function()
    local function with(key, value)
        return comment({ tres_per_node = "gres:gpu:1" }, { group = "demo", [key] = value })
    end

    for _, bad in ipairs({ "", "a b", "a;state=placed", "-x" }) do
        contains(with("role", bad), "role name '")
        contains(with("backend", bad), "backend '")
        contains(with("max_wait", bad), "seconds, 1 to 31622400")
    end
    contains(with("backend", "cuda+magic"), "backend 'magic' is not known on this cluster; known are app_channel,")
    contains(with("backend", "cuda+"), "backend ''")
    for _, bad in ipairs({ "0", "-1", "1.5", "31622401", "1e3", "0x10", "99999999999" }) do
        contains(with("max_wait", bad), "seconds, 1 to 31622400")
    end
end

tests["an option that makes no sense without a group is refused without one"] = function()
    local asked, reason = rules.asked({ [0] = OPTION:gsub("group=", "max_wait=5") })

    equal(asked, nil)
    contains(reason, "--interleave-max-wait needs --interleave-group=NAME")
end

tests["a client without our option asks by comment"] = function()
    equal(rules.asked(nil, "interleave=demo").group, "demo")
    equal(rules.asked({}, "night run, interleave=a.b-c; please").group, "a.b-c")
    equal(rules.asked({ [0] = OPTION .. "mine" }, "interleave=other").group, "mine")
    for _, other in ipairs({ "", "interleave", "interleave=", "interleave=none", "xinterleave=a", "no interleave = a" }) do
        equal(rules.asked(nil, other), nil, other)
    end
    contains(comment({ tres_per_node = "gres:gpu:1" }, rules.asked(nil, "interleave=a/b")), "is not allowed")
end

tests["a site names the accounts, roles, backends and partitions of its interleaved jobs"] = function()
    local gpu = { tres_per_node = "gres:gpu:1" }
    local function with(fields, asked)
        fields.tres_per_node = gpu.tres_per_node
        return comment(fields, asked)
    end
    rules.settings.accounts = { "physics", "chemistry" }
    rules.settings.roles = { "trainer", "sampler" }
    rules.settings.backends = { "cuda" }
    rules.settings.partitions = { "rl", "rl-long" }

    contains(with({ account = "art" }), "account 'art' is not allowed to interleave; allowed are physics, chemistry")
    contains(with({}), "account ''")
    contains(with({ default_account = "physics" }), "group=demo;")
    local physics = { account = "physics" }
    contains(with(physics, { group = "demo", role = "judge" }), "role 'judge' is not allowed on this cluster; allowed")
    contains(with(physics, { group = "demo", role = "sampler" }), "role=sampler;")
    contains(with(physics, { group = "demo", backend = "app_channel+cuda" }), "'app_channel' is not known")
    equal(changes({ account = "physics", tres_per_node = "gres:gpu:1" }).partition, "rl")
    equal(changes({ account = "physics", tres_per_node = "gres:gpu:1", partition = "batch,rl-long" }).partition, "rl-long")
    contains(rules.refuse_stranger(job({ partition = "rl-long" })), "partition rl-long")
    equal(rules.refuse_stranger(job({ partition = "interleave" })), nil)
end

tests["a setting that there is not refuses jobs that asked, with what there is"] = function()
    rules.settings.partition = "rl"

    contains(comment({ tres_per_node = "gres:gpu:1" }), "interleave.settings.partition is not known; known are accounts,")
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
    contains(comment({ tres_per_node = "gres:gpu:2" }), "give --mem: 2000 MiB are added to it")
end

tests["host memory goes by the type of GPU that was asked for"] = function()
    local function memory(gpus)
        return changes({ tres_per_node = gpus, min_mem_per_node = 500 }).min_mem_per_node
    end
    rules.settings.host_memory_mib = { h200 = 1000, a30 = 100, default = 10 }

    equal(memory("gres:gpu:h200:2"), 2500)
    equal(memory("gres:gpu:a30"), 600)
    equal(memory("gres:gpu:2"), 520)
    equal(memory("gres:gpu:b300:2"), 520)
    equal(memory("gres:gpu:a30:1,gres:gpu:a30:1"), 700)
    rules.settings.host_memory_mib = { h200 = 1000 }
    equal(memory("gres:gpu:2"), nil)
    contains(comment({ tres_per_node = "gres/gpu:h200:8" }), "give --mem: 8000 MiB")
end

assert(tests[arg[1]], "no such test")()
