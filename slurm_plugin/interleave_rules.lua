-- The rules for jobs of slurm-interleave: tables in, values out. No `slurm` global and no file is used here,
-- so plain Lua (5.1 to 5.4) can test them. job_submit.lua beside this file applies them.
local rules = {}

--- What a site may change, in its own job_submit.lua: interleave.settings.NAME = VALUE.
rules.settings = {
    -- The partition of the interleaving nodes. Jobs without a group are refused there.
    partition = "interleave",
    -- Users (uids) who may release held jobs and change where they run: root, and SlurmUser if it is another.
    operators = { [0] = true },
    -- Host memory in MiB added to --mem for each device, to hold its saved state. 0: nothing is added.
    host_memory_mib = 0,
}

local GROUP_RULE =
    "1 to 63 characters: letters, digits, dot, underscore and dash, beginning with a letter or a digit"
local OPTION = "_SLURM_SPANK_OPTION_interleave_interleave_"
local PREFIX = "interleave:v1;"
local NO_VAL = 4294967294 -- Slurm's "not set"; one more is "without limit"
local NO_VAL16 = 65534

--- True for a group name. The same rule as GROUP_NAME in client/core/names.py and names.c.
function rules.group_name_ok(text)
    return #text <= 63 and text:find("^[A-Za-z0-9][A-Za-z0-9._-]*$") ~= nil
end

--- A number that the job really gave, or nil.
local function given(value, none)
    return type(value) == "number" and value < (none or NO_VAL) and math.floor(value) or nil
end

local NAMES = {
    [OPTION .. "group"] = "option",
    INTERLEAVE_GROUP = "exported",
    INTERLEAVE_GPUS = "gpus",
    INTERLEAVE_SRUN = "srun",
}

--- What a job asks for as {group, gpus, srun}, not yet checked, or nil; and a reason where it contradicts itself.
-- The values are the user's text: a modified client may send anything. Slurm's table starts at 0.
function rules.asked(spank_job_env)
    local found = {}
    for _, entry in pairs(spank_job_env or {}) do
        local name, value = tostring(entry):match("^([^=]*)=(.*)$")
        if NAMES[name] then
            found[NAMES[name]] = value
        end
    end
    local group = found.exported or found.option
    if group == nil or group:lower() == "none" then
        return nil
    end
    if found.option and found.option ~= group then
        return nil, "--interleave-group and the exported group are not the same"
    end
    return { group = group, gpus = found.gpus, srun = found.srun ~= nil }
end

--- Split a TRES request such as "gres:gpu:h200:2,gres/gpu=1,cpu=4" into (GPUs, the rest as text, unreadable).
-- Slurm 22.05 writes "gres:gpu:2", 23.11 and later "gres/gpu:2".
function rules.split_request(text)
    local gpus, rest = 0, {}
    for part in tostring(text or ""):gmatch("[^,]+") do
        local words = {}
        for word in part:gsub("^gres[:/]", ""):gmatch("[^:=]+") do
            words[#words + 1] = word
        end
        if words[1] ~= "gpu" then
            rest[#rest + 1] = part
        elseif #words == 1 then
            gpus = gpus + 1
        elseif #words <= 3 and words[#words]:find("^%d+$") then
            gpus = gpus + tonumber(words[#words])
        elseif #words == 2 then
            gpus = gpus + 1 -- a type without a count
        else
            return nil, nil, part
        end
    end
    return gpus, table.concat(rest, ",")
end

--- How many nodes the job asks for.
local function nodes_of(job)
    local nodes = given(job.min_nodes)
    local tasks, per_node = given(job.num_tasks), given(job.ntasks_per_node, NO_VAL16)
    if nodes and nodes > 0 then
        return nodes
    elseif tasks and per_node and per_node > 0 then
        return math.ceil(tasks / per_node)
    end
    return 1
end

--- The total for one node, or nil and a reason.
local function share(total, nodes, what)
    if total % nodes == 0 then
        return total / nodes
    end
    return nil, ("%s is %d, which %d nodes cannot share evenly"):format(what, total, nodes)
end

local function per_task(job, gpus, nodes)
    local tasks = given(job.num_tasks)
    local per_node = given(job.ntasks_per_node, NO_VAL16)
    if not tasks and per_node and per_node > 0 then
        tasks = per_node * nodes
    end
    return share(gpus * (tasks or nodes), nodes, "the sum of --gpus-per-task")
end

--- What takes devices out of our hands, with what to use instead.
local REFUSED = {
    { "tres_per_socket", "--gpus-per-socket cannot be interleaved; use --gpus-per-node" },
    { "cpus_per_tres", "--cpus-per-gpu cannot be interleaved; use --cpus-per-task" },
    { "mem_per_tres", "--mem-per-gpu cannot be interleaved; use --mem" },
    { "array_inx", "job arrays cannot be interleaved; submit the jobs one by one" },
}

local function unsupported(job)
    for _, case in ipairs(REFUSED) do
        if job[case[1]] and job[case[1]] ~= "" then
            return case[2]
        end
    end
    local tasks_per_gpu = given(job.ntasks_per_tres or job.ntasks_per_gpu, NO_VAL16)
    if tasks_per_gpu and tasks_per_gpu > 0 then
        return "--ntasks-per-gpu cannot be interleaved; use --ntasks-per-node"
    end
    if given(job.het_job_offset) then
        return "heterogeneous jobs cannot be interleaved; submit their parts as jobs"
    end
    if job.priority == 0 then
        return "--hold cannot be interleaved; use --begin=TIME, or scontrol hold once the job is released"
    end
    -- 0 is --exclusive, 2 =user, 3 =mcs, 4 =topo; 1 is --oversubscribe.
    local shared = given(job.shared, NO_VAL16)
    if shared and shared ~= 1 then
        return "--exclusive cannot be interleaved: the members of a group share their nodes"
    end
    return nil
end

--- The GPUs in Slurm's own options as ({field = count}, the rest of tres_per_task), or nil and the reason.
local function slurm_gpus(job)
    local gpus, rest = {}, {}
    for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task" }) do
        local bad
        gpus[field], rest[field], bad = rules.split_request(job[field])
        if bad then
            return nil, "the GPU request '" .. bad .. "' is not understood; use --gpus-per-node=COUNT"
        end
    end
    local other = rest.tres_per_node .. rest.tres_per_job .. ((rest.tres_per_task .. ","):match("gres[^,]*") or "")
    if other ~= "" then
        return nil, "'" .. other .. "' cannot be combined with --interleave-group"
    end
    return gpus, rest.tres_per_task
end

--- Devices on each node by Slurm's own options, or nil and the reason.
local function devices_of(job, gpus, nodes)
    if gpus.tres_per_node > 0 then
        return gpus.tres_per_node
    elseif gpus.tres_per_job > 0 then
        return share(gpus.tres_per_job, nodes, "--gpus")
    elseif gpus.tres_per_task > 0 then
        return per_task(job, gpus.tres_per_task, nodes)
    end
    return nil, "no GPU is asked for; add --gpus-per-node=COUNT"
end

--- The same by --interleave-gpus, which srun needs.
local function own_devices(gpus, asked)
    if gpus.tres_per_node + gpus.tres_per_job + gpus.tres_per_task > 0 then
        return nil, "--interleave-gpus takes the place of Slurm's options for GPUs; give one of them"
    end
    if not asked.gpus:find("^[1-9]%d?%d?%d?$") then
        return nil, "--interleave-gpus takes 1 to 9999"
    end
    return tonumber(asked.gpus)
end

--- The request as {nodes, devices (on each node), rest_task}, or nil and the reason.
function rules.request_of(job, asked)
    local reason = unsupported(job)
    if reason then
        return nil, reason
    end
    local gpus, rest_task = slurm_gpus(job)
    if not gpus then
        return nil, rest_task
    end
    local nodes, devices = nodes_of(job), nil
    if asked.gpus then
        devices, reason = own_devices(gpus, asked)
    elseif asked.srun then
        reason = "srun outside a job takes --interleave-gpus=COUNT alone: its step would ask for other GPUs again"
    else
        devices, reason = devices_of(job, gpus, nodes)
    end
    if not devices then
        return nil, reason
    end
    return { nodes = nodes, devices = devices, rest_task = rest_task }
end

--- Host memory in MiB with room for the saved state of *devices*, or nil where nothing changes, and a reason.
local function memory_of(job, devices)
    local extra, memory = rules.settings.host_memory_mib * devices, given(job.min_mem_per_node, 2 ^ 53)
    if extra == 0 then
        return nil
    elseif memory and memory > 0 then
        return memory + extra
    end
    return nil, ("give --mem: %d MiB are added to it for the saved state of %d devices"):format(extra, devices)
end

--- What to change in a job that *asked* for a group, as a table of its fields; or nil and why it is refused.
function rules.changes(job, asked)
    local group = asked.group
    if not rules.group_name_ok(group) then
        local shown = group:sub(1, 64):gsub("[^ -~]", "?")
        return nil, "group name '" .. shown .. "' is not allowed; allowed are " .. GROUP_RULE
    end
    local request, reason = rules.request_of(job, asked)
    if not request then
        return nil, reason
    end
    local memory
    memory, reason = memory_of(job, request.devices)
    if reason then
        return nil, reason
    end
    return {
        partition = rules.settings.partition,
        priority = 0, -- held, until the placement helper has found its devices
        admin_comment = PREFIX
            .. ("group=%s;nodes=%d;devices=%d;role=;state=held"):format(group, request.nodes, request.devices),
        min_nodes = request.nodes,
        max_nodes = request.nodes,
        tres_per_node = "",
        tres_per_job = "",
        tres_per_task = request.rest_task,
        tres_bind = "", -- from 24.11, --gpus-per-task leaves one behind
        min_mem_per_node = memory,
    }
end

--- True if the comma separated list of *partitions* holds ours.
local function has_our_partition(partitions)
    for name in tostring(partitions or ""):gmatch("[^,]+") do
        if name == rules.settings.partition then
            return true
        end
    end
    return false
end

--- Why a job without a group is refused, or nil. *part_list* is Slurm's table of the user's partitions.
function rules.refuse_stranger(job, part_list)
    local own = (part_list or {})[rules.settings.partition]
    local by_default = (job.partition or "") == "" and own ~= nil and own.flag_default == 1
    if by_default or has_our_partition(job.partition) then
        return "partition " .. rules.settings.partition .. " takes jobs with --interleave-group=NAME alone"
    end
    return nil
end

--- Fields that decide where an interleaved job runs; the placement helper sets them.
local PLACED = {
    { "partition", "the partition" },
    { "tres_per_node", "the GRES" },
    { "tres_per_job", "--gpus" },
    { "tres_per_task", "--gpus-per-task" },
    { "req_nodes", "the nodes" },
    { "admin_comment", "the admin comment" },
}

--- Why user *uid* may not make the change *job* to the job *record*, or nil.
function rules.refuse_change(job, record, uid)
    if rules.settings.operators[uid] then
        return nil
    end
    local note = tostring(record.admin_comment or "")
    if note:sub(1, #PREFIX) ~= PREFIX then
        return has_our_partition(job.partition) and rules.refuse_stranger(job) or nil
    end
    for _, case in ipairs(PLACED) do
        if job[case[1]] and job[case[1]] ~= "" then
            return case[2] .. " of an interleaved job cannot be changed"
        end
    end
    if note:find(";state=held", 1, true) and type(job.priority) == "number" and job.priority ~= NO_VAL then
        return "it is held until its devices are assigned; it is released by itself, and can be held after that"
    end
    return nil
end

return rules
