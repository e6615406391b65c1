-- What job_submit costs slurmctld: `lua job_submit.lua FOLDER_OF_THE_RULES`; prints a line for each kind of job, its
-- name and microseconds. Run by job_submit.py.
local folder = arg[1]
local NO_VAL, NO_VAL16, NO_VAL64 = 4294967294, 65534, 18446744073709551614
local BLOCKS, JOBS = 21, 2000

slurm = { SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002, log_user = function() end, log_error = error }
dofile(folder .. "/job_submit.lua")

local function job(fields)
    local made = {
        min_nodes = NO_VAL, max_nodes = NO_VAL, num_tasks = 4, ntasks_per_node = NO_VAL16, ntasks_per_tres = NO_VAL16,
        shared = NO_VAL16, het_job_offset = NO_VAL, priority = NO_VAL, min_mem_per_node = 64000,
        min_mem_per_cpu = NO_VAL64, account = "physics", comment = "a run of the night, the third one",
    }
    for key, value in pairs(fields) do
        made[key] = value
    end
    return made
end

local OPTION = "_SLURM_SPANK_OPTION_interleave_interleave_"
local asks = {
    [0] = "OTHER_PLUGIN=1", [1] = OPTION .. "group=demo", [2] = "INTERLEAVE_GROUP=demo", [3] = OPTION .. "role=trainer",
    [4] = "INTERLEAVE_ROLE=trainer", [5] = OPTION .. "backend=app_channel,cuda",
    [6] = "INTERLEAVE_BACKEND=app_channel+cuda", [7] = OPTION .. "max_wait=10", [8] = "INTERLEAVE_MAX_WAIT=600",
}
local noted = { admin_comment = "interleave:v1;group=demo;nodes=1;devices=8;role=;lane=ilva;indices=0;state=released" }
noted.min_mem_per_node = 64000
local gpus = "gres/gpu:h200:8"

local kinds = {
    { "accepted", function() return slurm_job_submit(job({ spank_job_env = asks, tres_per_node = gpus }), {}, 1000) end },
    { "refused", function() return slurm_job_submit(job({ spank_job_env = asks, tres_per_node = "gpu:a:b:c" }), {}, 1000) end },
    { "stranger", function() return slurm_job_submit(job({ partition = "batch", tres_per_node = gpus }), {}, 1000) end },
    { "modified", function() return slurm_job_modify(job({ name = "x" }), noted, {}, 1000) end },
    { "nothing", function() return job({}) end }, -- what the benchmark itself costs
}

for _, kind in ipairs(kinds) do
    local blocks = {}
    for block = 1, BLOCKS do
        local began = os.clock()
        for _ = 1, JOBS do
            kind[2]()
        end
        blocks[block] = (os.clock() - began) / JOBS * 1e6
    end
    table.sort(blocks)
    print(kind[1], ("%.2f"):format(blocks[(BLOCKS + 1) / 2]))
end
