/* In srun: a new job when outside of one, else a step. */

#include "interleave.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * How the job asked for GPUs. srun would ask the same for each step, but the job has none: its devices are held by
 * the shared GRES. Hidden only while srun reads its options, since scripts use them too.
 */
static struct {
	const char *name;
	char *value;
} gpu_requests[] = {
    {"SLURM_GPUS", NULL},
    {"SLURM_GPUS_PER_NODE", NULL},
    {"SLURM_GPUS_PER_TASK", NULL},
    {"SLURM_GPU_BIND", NULL},
    {"SLURM_TRES_BIND", NULL},
    {"SLURM_TRES_PER_TASK", NULL}, /* from 23.11; CPUs are in SLURM_CPUS_PER_TASK too */
};

static bool in_job(void)
{
	return (getenv("SLURM_JOB_ID") != NULL || getenv("SLURM_JOBID") != NULL);
}

/* The group of the job that this step belongs to; empty for none. */
static const char *job_group(void)
{
	const char *group = getenv("INTERLEAVE_GROUP");

	if (group == NULL)
		group = getenv(INHERITED "INTERLEAVE_GROUP"); /* in the shell of salloc */
	return (group == NULL ? "" : group);
}

static void gpu_requests_hide(void)
{
	for (size_t i = 0; i < sizeof(gpu_requests) / sizeof(gpu_requests[0]); i++) {
		const char *value = getenv(gpu_requests[i].name);

		if (value != NULL && (gpu_requests[i].value = strdup(value)) != NULL)
			unsetenv(gpu_requests[i].name);
	}
}

static void gpu_requests_show(void)
{
	for (size_t i = 0; i < sizeof(gpu_requests) / sizeof(gpu_requests[0]); i++) {
		if (gpu_requests[i].value == NULL)
			continue;
		setenv(gpu_requests[i].name, gpu_requests[i].value, 0);
		free(gpu_requests[i].value);
		gpu_requests[i].value = NULL;
	}
}

int srun_init(spank_t sp, int ac, char **av)
{
	struct args args;

	if (args_parse(&args, ac, av) < 0)
		return (-1);
	if (!in_job()) {
		submit_forget_parent(sp);
		submit_use_variables(SRUN);
	} else if (job_group()[0] != '\0') {
		gpu_requests_hide();
	}
	return (option_register(sp));
}

static const char *group_refusal(const char *group)
{
	static char text[256];

	if (strcmp(group, job_group()) == 0)
		return (NULL);
	/* What a step inherits is what its job asked for, and not the group that was found for it. */
	if (strcmp(group, "auto") == 0 && strncmp(job_group(), "auto-", strlen("auto-")) == 0)
		return (NULL);
	snprintf(text, sizeof(text),
	         "a step runs in the group of its job, which is %s%.64s; leave the option out, "
	         "or give it to sbatch, salloc or an srun outside a job",
	         job_group()[0] == '\0' ? "none" : "", job_group());
	return (text);
}

/* Why a step may not have *value*, or NULL. In a job, Slurm hands the job's own options to each srun as if typed. */
const char *srun_refusal(int number, const char *text, const char *value)
{
	if (!in_job())
		return (NULL);
	if (number == GROUP)
		return (group_refusal(value));
	return (submit_inherited(number, text) ? NULL : "a step has it from its job; give it to sbatch, salloc or an srun "
	                                                "outside a job");
}

int srun_post_opt(spank_t sp)
{
	gpu_requests_show();
	return (in_job() ? 0 : submit_export(sp));
}
