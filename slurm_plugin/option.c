#include "interleave.h"

#include <stdio.h>

static struct option_value value;

/* A copy of *text* that is safe to print: the user may have typed anything. */
static void printable(const char *text, char *copy, size_t size)
{
	size_t i;

	for (i = 0; i < size - 1 && text[i] != '\0'; i++)
		copy[i] = (text[i] < ' ' || text[i] > '~') ? '?' : text[i];
	copy[i] = '\0';
}

/* The option or variable that *text* came by, as the user knows it. */
static const char *source(int number, const char *text)
{
	static char option[64];
	const char *variable = submit_variable(number, text);

	if (variable != NULL)
		return (variable);
	snprintf(option, sizeof(option), "--%s", settings[number].option);
	return (option);
}

static int refuse(int number, const char *text)
{
	char shown[GROUP_NAME_MAX + 2];

	printable(text, shown, sizeof(shown));
	slurm_error("interleave: %s: \"%s\" is not allowed; allowed are %s", source(number, text), shown,
	            settings[number].rule);
	return (-1);
}

static int chosen(int number, const char *text, int remote)
{
	const char *refusal;
	bool good;

	if (text == NULL)
		return (remote ? 0 : -1);
	if (number == GROUP)
		value.given = true;
	good = settings[number].read(text, value.text[number]);
	if (remote) /* Checked where it was typed; on a node a bad one is as good as none, and no reason to fail a job. */
		return (0);
	if (!good)
		return (refuse(number, text));
	value.by_variable[number] = submit_variable(number, text) != NULL;
	refusal = spank_context() == S_CTX_LOCAL ? srun_refusal(number, text, value.text[number]) : NULL;
	if (refusal != NULL) {
		slurm_error("interleave: %s: %s", source(number, text), refusal);
		return (-1);
	}
	return (0);
}

static struct {
	const char *arginfo;
	const char *usage;
} help[SETTINGS] = {
    [GROUP] = {"NAME", "[interleave] take turns on the GPUs with the other jobs of group NAME; "
                       "\"auto\": of a group that is found for it; "
                       "\"none\": in no group, whatever the environment says"},
    [GPUS] = {"COUNT", "[interleave] GPUs on each node, instead of Slurm's options for GPUs; "
                       "needed with srun outside a job"},
    [ROLE] = {"NAME", "[interleave] what the job does in its group, such as trainer or sampler; "
                      "jobs of different roles have different GPUs"},
    [BACKEND] = {"NAME[,NAME]", "[interleave] what moves the job's state off the GPUs and back, in this order, "
                                "such as app_channel,cuda; else the node's own"},
    [MAX_WAIT] = {"TIME", "[interleave] how long a turn is waited for before the wait fails; else without limit"},
    [PROFILE] = {"NAME", "[interleave] what the job does, by a name that all jobs which do the same have: "
                         "what is learned of them chooses their partners; else by account, job name and GPUs"},
    [MAX_SLOWDOWN] = {"PERCENT", "[interleave] how much slower the job may become by sharing its GPUs, where its "
                                 "partners are chosen for it; else as the site says"},
};

int option_register(spank_t sp)
{
	for (int i = 0; i < SETTINGS; i++) {
		struct spank_option option = {
		    .name = (char *)settings[i].option,
		    .arginfo = (char *)help[i].arginfo,
		    .usage = (char *)help[i].usage,
		    .has_arg = 1,
		    .val = i,
		    .cb = chosen,
		};
		spank_err_t rc = spank_option_register(sp, &option);

		if (rc != ESPANK_SUCCESS) {
			slurm_error("interleave: couldn't register --%s: %s", settings[i].option, spank_strerror(rc));
			return (-1);
		}
	}
	return (0);
}

const struct option_value *option_value(void)
{
	return (&value);
}
