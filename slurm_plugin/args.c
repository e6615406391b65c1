#include "interleave.h"

#include <stdio.h>
#include <string.h>

/* Copy the path *value* of key *key* into *field*, which has *size* bytes. */
static int path_set(const char *key, const char *value, char *field, size_t size)
{
	if (value[0] != '/') {
		slurm_error("interleave: plugstack.conf: %s=%s: couldn't use it: must begin with /", key, value);
		return (-1);
	}
	if (strlen(value) >= size) {
		slurm_error("interleave: plugstack.conf: %s: couldn't use it: longer than %zu characters", key,
		            size - 1);
		return (-1);
	}
	strcpy(field, value);
	return (0);
}

static int word_set(struct args *args, const char *word)
{
	if (strncmp(word, "run_dir=", 8) == 0)
		return (path_set("run_dir", word + 8, args->run_dir, sizeof(args->run_dir)));
	if (strncmp(word, "hook=", 5) == 0)
		return (path_set("hook", word + 5, args->hook, sizeof(args->hook)));
	slurm_error("interleave: plugstack.conf: unknown word \"%s\"; known are run_dir=DIRECTORY and hook=PATH",
	            word);
	return (-1);
}

int args_parse(struct args *args, int ac, char **av)
{
	strcpy(args->run_dir, "/run/interleave");
	args->hook[0] = '\0';
	for (int i = 0; i < ac; i++)
		if (word_set(args, av[i]) < 0)
			return (-1);
	return (0);
}

int args_run_dir(const struct args *args, const char *node, char *path, size_t size)
{
	const char *mark = strstr(args->run_dir, "%n");
	int length;

	if (mark == NULL)
		length = snprintf(path, size, "%s", args->run_dir);
	else
		length = snprintf(path, size, "%.*s%s%s", (int)(mark - args->run_dir), args->run_dir, node, mark + 2);
	return (length >= 0 && (size_t)length < size ? 0 : -1);
}
