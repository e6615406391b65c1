#include "interleave.h"

#include <stdio.h>
#include <string.h>

static const char run_dir_key[] = "run_dir=";

static int run_dir_set(struct args *args, const char *value)
{
	if (value[0] != '/') {
		slurm_error("interleave: plugstack.conf: run_dir=%s: couldn't use it: must begin with /", value);
		return (-1);
	}
	if (strlen(value) >= sizeof(args->run_dir)) {
		slurm_error("interleave: plugstack.conf: run_dir: couldn't use it: longer than %zu characters",
		            sizeof(args->run_dir) - 1);
		return (-1);
	}
	strcpy(args->run_dir, value);
	return (0);
}

int args_parse(struct args *args, int ac, char **av)
{
	strcpy(args->run_dir, "/run/interleave");
	for (int i = 0; i < ac; i++) {
		if (strncmp(av[i], run_dir_key, strlen(run_dir_key)) != 0) {
			slurm_error("interleave: plugstack.conf: unknown word \"%s\"; known is run_dir=DIRECTORY", av[i]);
			return (-1);
		}
		if (run_dir_set(args, av[i] + strlen(run_dir_key)) < 0)
			return (-1);
	}
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
