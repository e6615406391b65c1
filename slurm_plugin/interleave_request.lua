-- What a job asks for, as nodes and devices: tables in, values out. Used by interleave_rules.lua; plain Lua.
local request = {}

local NO_VAL = 4294967294 -- Slurm's "not set"; one more is "without limit"
local NO_VAL16 = 65534
request.NO_VAL = NO_VAL

--- A number that the job really gave, or nil.
function request.given(value, none)
    return type(value) == "number" and value < (none or NO_VAL) and math.floor(value) or nil
end
local given = request.given

--- Split a TRES request such as "gres:gpu:h200:2,gres/gpu=1,cpu=4" into (GPUs, the rest as text, unreadable);
-- the GPUs' types are added to the set *types*. Slurm 22.05 writes "gres:gpu:2", 23.11 and later "gres/gpu:2".
local function split_request(text, types)
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
        if words[1] == "gpu" and words[2] and not words[2]:find("^%d+$") then
            types[words[2]] = true
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
}

--- Why the dependency that *job* asks for is refused, or nil: nodes cannot be given to another job.
function request.refused_dependency(job)
    if tostring(job.dependency or ""):lower():find("expand:", 1, true) then
        return "--dependency=expand cannot be interleaved; ask for all nodes in one job"
    end
    return nil
end

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
    if job.priority == 0 then
        return "--hold cannot be interleaved; use --begin=TIME, or scontrol hold once the job is released"
    end
    -- 0 is --exclusive, 2 =user, 3 =mcs, 4 =topo; 1 is --oversubscribe.
    local shared = given(job.shared, NO_VAL16)
    if shared and shared ~= 1 then
        return "--exclusive cannot be interleaved: the members of a group share their nodes"
    end
    local constraint = tostring(job.features or "")
    if constraint:find("[^%w._&|-]") or constraint:find("&", 1, true) and constraint:find("|", 1, true) then
        return "--constraint cannot be interleaved but for names joined by & or by |"
    end
    return request.refused_dependency(job)
end

--- The one type of GPU among the *types* asked for, or nil; and a reason where that cannot be had. Slurm does not
-- see the request any more, so that a type is one is left to the helper.
local function type_of(types)
    local name = next(types)
    if name and next(types, name) then
        return nil, "GPUs of several types cannot be interleaved; ask for one type"
    elseif name and not name:find("^[%a_][%w._-]*$") then
        return nil, "the type of GPU is not a name: letters, digits, dot, underscore and dash, beginning with a letter"
    end
    return name
end

--- The GPUs in Slurm's own options as ({field = count}, the rest of tres_per_task, set of types), or nil and the
-- reason.
local function slurm_gpus(job)
    local gpus, rest, types = {}, {}, {}
    for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task" }) do
        local bad
        gpus[field], rest[field], bad = split_request(job[field], types)
        if bad then
            return nil, "the GPU request '" .. bad .. "' is not understood; use --gpus-per-node=COUNT"
        end
    end
    local other = rest.tres_per_node .. rest.tres_per_job .. ((rest.tres_per_task .. ","):match("gres[^,]*") or "")
    if other ~= "" then
        return nil, "'" .. other .. "' cannot be combined with --interleave-group"
    end
    return gpus, rest.tres_per_task, types
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

--- The request as {nodes, devices (on each node), rest_task, gpu_type (or nil)}, or nil and the reason.
function request.of(job, asked)
    local reason = unsupported(job)
    if reason then
        return nil, reason
    end
    local gpus, rest_task, types = slurm_gpus(job)
    if not gpus then
        return nil, rest_task
    end
    local nodes, devices, gpu_type = nodes_of(job), nil, nil
    gpu_type, reason = type_of(types)
    if reason then
        return nil, reason
    elseif asked.gpus then
        devices, reason = own_devices(gpus, asked)
    elseif asked.srun then
        reason = "srun outside a job takes --interleave-gpus=COUNT alone: its step would ask for other GPUs again"
    else
        devices, reason = devices_of(job, gpus, nodes)
    end
    if not devices then
        return nil, reason
    end
    return { nodes = nodes, devices = devices, rest_task = rest_task, gpu_type = gpu_type }
end

--- MiB of host memory for the state of one device: *table_or_number* by type.
local function mib_of(table_or_number, gpu_type)
    if type(table_or_number) == "number" then
        return table_or_number
    end
    return table_or_number[gpu_type or "default"] or table_or_number.default or 0
end

--- Host memory in MiB with room for the saved state of the devices of *made*, or nil where nothing changes, and a
-- reason. *host_memory_mib* is the site's setting.
function request.memory_of(job, made, host_memory_mib)
    local extra = mib_of(host_memory_mib, made.gpu_type) * made.devices
    local memory = given(job.min_mem_per_node, 2 ^ 53)
    if extra == 0 then
        return nil
    elseif memory and memory > 0 then
        return memory + extra
    end
    return nil, ("give --mem: %d MiB are added to it for the saved state of %d devices"):format(extra, made.devices)
end

return request
