/* The options: what they are called everywhere, and what they take. */

#include "interleave.h"

#define NAMES(option, lower, upper) \
	"interleave-" option, "INTERLEAVE_" upper, "_SLURM_SPANK_OPTION_interleave_interleave_" lower, \
	{ \
		"SBATCH_INTERLEAVE_" upper, "SALLOC_INTERLEAVE_" upper, "SRUN_INTERLEAVE_" upper \
	}

const struct setting settings[SETTINGS] = {
    [GROUP] = {NAMES("group", "group", "GROUP"), GROUP_NAME_RULE "; or \"none\"", name_read},
    [GPUS] = {NAMES("gpus", "gpus", "GPUS"), "1 to 9999", gpu_count_read},
    [ROLE] = {NAMES("role", "role", "ROLE"), GROUP_NAME_RULE "; or \"none\"", name_read},
    [BACKEND] = {NAMES("backend", "backend", "BACKEND"),
                 "names of letters, digits and underscores with commas between them, at most 127 characters; or \"none\"",
                 backend_read},
    [MAX_WAIT] = {NAMES("max-wait", "max_wait", "MAX_WAIT"),
                  "Slurm's forms of time, such as 90 (minutes), 1:30:00 or 2-12, up to 366 days; or \"unlimited\"",
                  wait_read},
    [PROFILE] = {NAMES("profile", "profile", "PROFILE"), GROUP_NAME_RULE "; or \"none\"", name_read},
    [MAX_SLOWDOWN] = {NAMES("max-slowdown", "max_slowdown", "MAX_SLOWDOWN"),
                      "whole percent from 0 to 1000, such as 10; or \"none\"", percent_read},
};
