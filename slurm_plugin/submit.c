#include "interleave.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobvars.h"

static void entry_forget(spank_t sp, const char *entry)
{
	char inherited[128];

	snprintf(inherited, sizeof(inherited), INHERITED "%s", entry);
	unsetenv(inherited);
	spank_job_control_unsetenv(sp, entry); /* which srun has read by now; unset ones are no error */
}

/* Take what one option says out of this program's environment, and of what it sends to slurmctld. */
static void setting_forget(spank_t sp, int number)
{
	entry_forget(sp, settings[number].entry);
	entry_forget(sp, settings[number].slurm_entry);
	unsetenv(settings[number].slurm_entry);
}

static void settings_forget(spank_t sp)
{
	for (int i = 0; i < SETTINGS; i++)
		setting_forget(sp, i);
	entry_forget(sp, JOB_CONTROL_SRUN);
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
	const char *gres;

	settings_forget(sp);
	if (!in_interleaved_job())
		return;
	for (size_t i = 0; jobvars[i] != NULL; i++)
		unsetenv(jobvars[i]);
	unsetenv("CUDA_VISIBLE_DEVICES");
	gres = getenv("SLURM_GRES");
	if (gres != NULL && strncmp(gres, SHARDS, strlen(SHARDS)) == 0)
		unsetenv("SLURM_GRES");
}

static const char *used[SETTINGS]; /* the variables that stand for options */

/* Where Slurm looks for an option that was not typed. */
static const char *inherited_option(int number)
{
	static char name[128];

	snprintf(name, sizeof(name), INHERITED "%s", settings[number].slurm_entry);
	return (name);
}

/* Let Slurm read the variables of *program* as options: after the script, before the command line. */
void submit_use_variables(int program)
{
	for (int i = 0; i < SETTINGS; i++) {
		const char *name = settings[i].variables[program];
		const char *text = getenv(name);

		if (text == NULL || text[0] == '\0')
			continue;
		if (setenv(inherited_option(i), text, 1) < 0)
			slurm_error("interleave: couldn't use %s", name);
		else
			used[i] = name;
	}
}

const char *submit_variable(int number, const char *text)
{
	return (text == getenv(inherited_option(number)) ? used[number] : NULL);
}

bool submit_inherited(int number, const char *text)
{
	const char *inherited = getenv(inherited_option(number));

	return (inherited != NULL && strcmp(text, inherited) == 0);
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

	if (value->text[GROUP][0] == '\0') {
		/* What was typed without a group stays, for job_submit to refuse; variables may just be there. */
		for (int i = 0; i < SETTINGS; i++)
			if (value->given || value->by_variable[i])
				setting_forget(sp, i);
		return (0); /* This job did not ask for us. */
	}
	for (int i = 0; i < SETTINGS; i++)
		if (value->text[i][0] != '\0' && entry_export(sp, settings[i].entry, value->text[i]) < 0)
			return (-1);
	/* The step of such a srun would ask for the job's GPUs again: job_submit must know. */
	if (spank_context() == S_CTX_LOCAL && entry_export(sp, JOB_CONTROL_SRUN, "1") < 0)
		return (-1);
	return (0);
}
