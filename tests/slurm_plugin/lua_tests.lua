-- What the tests in plain Lua share.
local NO_VAL, NO_VAL16 = 4294967294, 65534
local shared = { OPTION = "_SLURM_SPANK_OPTION_interleave_interleave_group=" }

--- A job as Slurm hands it over: numbers that nobody gave are NO_VAL, texts are nil.
function shared.job(fields)
    local made = {
        min_nodes = NO_VAL, max_nodes = NO_VAL, num_tasks = NO_VAL, ntasks_per_node = NO_VAL16,
        ntasks_per_tres = NO_VAL16, shared = NO_VAL16, het_job_offset = NO_VAL, priority = NO_VAL,
    }
    for key, value in pairs(fields) do
        made[key] = value
    end
    return made
end

function shared.equal(actual, expected, what)
    if actual ~= expected then
        error(("%s: got %s, expected %s"):format(what or "value", tostring(actual), tostring(expected)), 2)
    end
end

function shared.contains(text, part)
    if type(text) ~= "string" or not text:find(part, 1, true) then
        error(("got %s, expected it to hold %q"):format(tostring(text), part), 2)
    end
end

return shared
