/* The environment file that this node's agent wrote for a job. Needs no Slurm, so that tests can compile it alone. */

#ifndef INTERLEAVE_ENVIRONMENT_H
#define INTERLEAVE_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

struct variable {
	const char *name;
	const char *value;
};

struct environment {
	char *text; /* owns the names and values */
	struct variable *variables;
	size_t count;
};

/* True for a variable that a job may be given by its agent. */
bool environment_allows(const char *name);

/*
 * Read the file *path*. Returns 0; or -1 with errno set, and nothing to free: ENOENT where there is none,
 * EPERM where others than root (or this process) could have written it, EFBIG beyond 64 KiB.
 */
int environment_read(struct environment *environment, const char *path);

void environment_free(struct environment *environment);

#endif
