/* interleave.so: the SPANK plugin of slurm-interleave. One file for each place where Slurm loads it. */

#ifndef INTERLEAVE_H
#define INTERLEAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/spank.h>

#include "names.h"

/* Slurm exports each entry of the job control environment into the job under this prefix. */
#define INHERITED "SLURM_SPANK_"

/* How the shards of a step are asked for: SLURM_GRES=shard:1. */
#define SHARDS "shard:"

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
	const char *role; /* this and the next ones: empty for none */
	const char *backend;
	const char *max_wait; /* seconds, as digits */
	const char *profile;
	const char *max_slowdown; /* percent, as digits */
};

/*
 * Tell the agent with the folder *run_dir* about *job*, as the prolog does: by running *hook*, or interleave-hook of
 * the usual folders where that is empty. Returns 0; or -1 where it could not be run, failed or was late.
 */
int hook_job_start(const char *hook, const char *run_dir, const struct job_start *job);

/* The options, each with its place in `settings` (settings.c). */
enum { GROUP, GPUS, ROLE, BACKEND, MAX_WAIT, PROFILE, MAX_SLOWDOWN, SETTINGS };

struct setting {
	const char *option; /* as typed, without the dashes */
	/* In the job control environment: job_submit sees this name, prolog and epilog see it with SPANK_ before. */
	const char *entry;
	const char *slurm_entry; /* the name there that Slurm makes out of the plugin's and the option's */
	const char *variables[3]; /* that stand for the option: of sbatch, salloc, srun */
	const char *rule;
	bool (*read)(const char *text, char *value);
};

/* The programs that submit jobs, as indices of `variables`. */
enum { SBATCH, SALLOC, SRUN, PROGRAMS };

extern const struct setting settings[SETTINGS];

/* Not an option: the job is of a srun, whose step asks for what the job asked for. */
#define JOB_CONTROL_SRUN "INTERLEAVE_SRUN"

/* What was chosen (option.c). */
struct option_value {
	bool given; /* a group, or an explicit `none` */
	bool by_variable[SETTINGS];
	char text[SETTINGS][VALUE_MAX + 1]; /* empty: none */
};

int option_register(spank_t sp);
const struct option_value *option_value(void);

/* A new job: sbatch, salloc, and srun outside a job (submit.c). */
void submit_forget_parent(spank_t sp);
void submit_use_variables(int program);
const char *submit_variable(int number, const char *text); /* the one that *text* came by, or NULL */
bool submit_inherited(int number, const char *text); /* the job of this step has it */
int submit_export(spank_t sp);

/* The places: allocator.c (sbatch, salloc), srun.c, slurmd.c, slurmstepd.c. */
int allocator_init(spank_t sp, int ac, char **av);
int srun_init(spank_t sp, int ac, char **av);
int srun_post_opt(spank_t sp);
const char *srun_refusal(int number, const char *text, const char *value);
int slurmd_init(int ac, char **av);
int slurmstepd_init(spank_t sp, int ac, char **av);
int slurmstepd_post_opt(spank_t sp);
int slurmstepd_task_init(spank_t sp);

#endif
