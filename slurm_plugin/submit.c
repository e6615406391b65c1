#include "interleave.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobvars.h"

static const char *const entries[] = {
    SLURM_OPTION_GROUP, SLURM_OPTION_GPUS, JOB_CONTROL_GROUP, JOB_CONTROL_GPUS, JOB_CONTROL_SRUN,
};

/* Take out of this program's environment, and of what it sends to slurmctld, what says that the job is ours. */
static void entries_forget(spank_t sp)
{
	char inherited[128];

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		snprintf(inherited, sizeof(inherited), INHERITED "%s", entries[i]);
		unsetenv(inherited);
		spank_job_control_unsetenv(sp, entries[i]); /* which srun has read by now; unset ones are no error */
	}
	unsetenv(SLURM_OPTION_GROUP);
	unsetenv(SLURM_OPTION_GPUS);
}

/*
 * True inside an interleaved job, even where its user has unset some of what it was given. The other variables say
 * nothing: users and sites set them too, outside.
 */
static bool in_interleaved_job(void)
{
	static const char *const marks[] = {
	    "INTERLEAVE_JOB_ID", "INTERLEAVE_TOKEN", "INTERLEAVE_SOCKET", "INTERLEAVE_GROUP",
	};

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (getenv(marks[i]) != NULL)
			return (true);
	return (false);
}

/*
 * A job that submits another one must not drag its group along, nor its token or its devices. Slurm hands the
 * option of the outer job to the inner one through the environment, so this comes before the options are read.
 */
void submit_forget_parent(spank_t sp)
{
	entries_forget(sp);
	if (!in_interleaved_job())
		return;
	for (size_t i = 0; jobvars[i] != NULL; i++)
		unsetenv(jobvars[i]);
	unsetenv("CUDA_VISIBLE_DEVICES");
}

static const char *variable = NULL;

/* Where *name* is set, let Slurm read it as the option: after the script, before the command line. */
void submit_use_variable(const char *name)
{
	const char *text = getenv(name);

	if (text == NULL || text[0] == '\0')
		return;
	if (setenv(INHERITED SLURM_OPTION_GROUP, text, 1) < 0)
		slurm_error("interleave: couldn't use %s", name);
	else
		variable = name;
}

const char *submit_variable(const char *text)
{
	return (text == getenv(INHERITED SLURM_OPTION_GROUP) ? variable : NULL);
}

static int entry_export(spank_t sp, const char *name, const char *value)
{
	spank_err_t rc = spank_job_control_setenv(sp, name, value, 1);

	if (rc == ESPANK_SUCCESS)
		return (0);
	slurm_error("interleave: couldn't export %s: %s", name, spank_strerror(rc));
	return (-1);
}

/* Make the choice known to job_submit, prolog and epilog, or take back what says `none`. */
int submit_export(spank_t sp)
{
	const struct option_value *value = option_value();

	if (!value->given)
		return (0); /* This job did not ask for us. */
	if (value->group[0] == '\0') {
		entries_forget(sp);
		return (0);
	}
	if (entry_export(sp, JOB_CONTROL_GROUP, value->group) < 0)
		return (-1);
	if (value->gpus[0] != '\0' && entry_export(sp, JOB_CONTROL_GPUS, value->gpus) < 0)
		return (-1);
	/* The step of such a srun would ask for the job's GPUs again: job_submit must know. */
	if (spank_context() == S_CTX_LOCAL && entry_export(sp, JOB_CONTROL_SRUN, "1") < 0)
		return (-1);
	return (0);
}
