/* interleave.so: the SPANK plugin of slurm-interleave. One file for each place where Slurm loads it. */

#ifndef INTERLEAVE_H
#define INTERLEAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

#include "names.h"

/* The job control environment: job_submit sees these names, prolog and epilog see them with SPANK_ before. */
#define JOB_CONTROL_GROUP "INTERLEAVE_GROUP"
#define JOB_CONTROL_GPUS "INTERLEAVE_GPUS"
#define JOB_CONTROL_SRUN "INTERLEAVE_SRUN"
/* The names that Slurm makes out of the plugin's and the option's name. */
#define SLURM_OPTION_GROUP "_SLURM_SPANK_OPTION_interleave_interleave_group"
#define SLURM_OPTION_GPUS "_SLURM_SPANK_OPTION_interleave_interleave_gpus"
/* Slurm exports each entry of the job control environment into the job under this prefix. */
#define INHERITED "SLURM_SPANK_"

/* Words of plugstack.conf (args.c). */
struct args {
	char run_dir[256]; /* of this node's agent; `%n` stands for the node's name */
	char hook[256]; /* path of interleave-hook; empty: in the usual folders */
};

int args_parse(struct args *args, int ac, char **av);
int args_run_dir(const struct args *args, const char *node, char *path, size_t size);

/* A job that starts on this node (hook.c). Needs no Slurm. */
struct job_start {
	uint32_t job_id;
	uint32_t uid;
	uint32_t gid;
	const char *user;
	const char *account;
	const char *partition;
	const char *group;
	const char *restarts; /* how often Slurm has put the job back; empty: nobody knows */
};

/*
 * Tell the agent with the folder *run_dir* about *job*, as the prolog does: by running *hook*, or interleave-hook of
 * the usual folders where that is empty. Returns 0; or -1 where it could not be run, failed or was late.
 */
int hook_job_start(const char *hook, const char *run_dir, const struct job_start *job);

/* --interleave-group and --interleave-gpus (option.c). */
struct option_value {
	bool given; /* also true for an explicit `none` */
	char group[GROUP_NAME_MAX + 1]; /* empty: none */
	char gpus[8]; /* GPUs on each node, as digits; empty: as in Slurm's own options */
};

int option_register(spank_t sp);
const struct option_value *option_value(void);

/* A new job: sbatch, salloc, and srun outside a job (submit.c). */
void submit_forget_parent(spank_t sp);
void submit_use_variable(const char *name);
const char *submit_variable(const char *text);
int submit_export(spank_t sp);

/* The places: allocator.c (sbatch, salloc), srun.c, slurmd.c, slurmstepd.c. */
int allocator_init(spank_t sp, int ac, char **av);
int srun_init(spank_t sp, int ac, char **av);
int srun_post_opt(spank_t sp);
const char *srun_refusal(const struct option_value *value);
int slurmd_init(int ac, char **av);
int slurmstepd_init(spank_t sp, int ac, char **av);
int slurmstepd_post_opt(spank_t sp);
int slurmstepd_task_init(spank_t sp);

#endif
