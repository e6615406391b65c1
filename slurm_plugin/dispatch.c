#include "interleave.h"

SPANK_PLUGIN(interleave, 1)

/* slurm_spank_job_prolog and _epilog are left out: with them, Slurm hides our variable from the prolog script. */

int slurm_spank_init(spank_t sp, int ac, char **av)
{
	switch (spank_context()) {
	case S_CTX_ALLOCATOR:
		return (allocator_init(sp, ac, av));
	case S_CTX_LOCAL:
		return (srun_init(sp, ac, av));
	case S_CTX_REMOTE:
		return (slurmstepd_init(sp, ac, av));
	case S_CTX_SLURMD:
		return (slurmd_init(ac, av));
	default:
		return (0);
	}
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
	(void)ac;
	(void)av;
	switch (spank_context()) {
	case S_CTX_ALLOCATOR:
		return (submit_export(sp));
	case S_CTX_LOCAL:
		return (srun_post_opt(sp));
	case S_CTX_REMOTE:
		return (slurmstepd_post_opt(sp));
	default:
		return (0);
	}
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	(void)ac;
	(void)av;
	return (spank_context() == S_CTX_REMOTE ? slurmstepd_task_init(sp) : 0);
}
