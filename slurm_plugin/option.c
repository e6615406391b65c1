#include "interleave.h"

#include <string.h>

static struct option_value value;

/* A copy of *text* that is safe to print: the user may have typed anything. */
static void printable(const char *text, char *copy, size_t size)
{
	size_t i;

	for (i = 0; i < size - 1 && text[i] != '\0'; i++)
		copy[i] = (text[i] < ' ' || text[i] > '~') ? '?' : text[i];
	copy[i] = '\0';
}

static int group_set(const char *text)
{
	const char *refusal, *variable = submit_variable(text);
	const char *source = variable == NULL ? "--interleave-group" : variable;
	char shown[GROUP_NAME_MAX + 2];

	value.given = true;
	value.group[0] = '\0';
	if (!group_is_none(text)) {
		if (!group_name_ok(text)) {
			printable(text, shown, sizeof(shown));
			slurm_error("interleave: %s: group name \"%s\" is not allowed; allowed are " GROUP_NAME_RULE
			            "; or \"none\"",
			            source, shown);
			return (-1);
		}
		strcpy(value.group, text);
	}

	refusal = spank_context() == S_CTX_LOCAL ? srun_refusal(&value) : NULL;
	if (refusal != NULL) {
		slurm_error("interleave: %s: %s", source, refusal);
		return (-1);
	}
	return (0);
}

static int group_chosen(int val, const char *text, int remote)
{
	(void)val;
	if (text == NULL)
		return (remote ? 0 : -1);
	if (!remote)
		return (group_set(text));
	/* Checked where it was typed; on a node a bad one is as good as none, and no reason to fail a job. */
	value.given = true;
	value.group[0] = '\0';
	if (!group_is_none(text) && group_name_ok(text))
		strcpy(value.group, text);
	return (0);
}

static int gpus_chosen(int val, const char *text, int remote)
{
	char shown[GROUP_NAME_MAX + 2];

	(void)val;
	if (remote)
		return (0);
	if (text == NULL || !gpu_count_ok(text)) {
		printable(text == NULL ? "" : text, shown, sizeof(shown));
		slurm_error("interleave: --interleave-gpus: \"%s\" is not allowed; allowed are 1 to 9999", shown);
		return (-1);
	}
	strcpy(value.gpus, text);
	return (0);
}

static struct spank_option options[] = {
    {
        .name = "interleave-group",
        .arginfo = "NAME",
        .usage = "[interleave] take turns on the GPUs with the other jobs of group NAME; "
                 "\"none\": in no group, whatever the environment says",
        .has_arg = 1,
        .cb = group_chosen,
    },
    {
        .name = "interleave-gpus",
        .arginfo = "COUNT",
        .usage = "[interleave] GPUs on each node, instead of Slurm's options for GPUs; "
                 "needed with srun outside a job",
        .has_arg = 1,
        .cb = gpus_chosen,
    },
};

int option_register(spank_t sp)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		spank_err_t rc = spank_option_register(sp, &options[i]);

		if (rc != ESPANK_SUCCESS) {
			slurm_error("interleave: couldn't register --%s: %s", options[i].name, spank_strerror(rc));
			return (-1);
		}
	}
	return (0);
}

const struct option_value *option_value(void)
{
	return (&value);
}
