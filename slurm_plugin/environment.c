#include "environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_MAX_BYTES (64 * 1024)

static const char *const prefixes[] = {"INTERLEAVE_", "TIMESLICE_"};
static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE", "AGENT_ENDPOINT"};

bool environment_allows(const char *name)
{
	if (name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] != '\0')
		return (false);
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return (true);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return (true);
	return (false);
}

static int file_check(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return (-1);
	if (!S_ISREG(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()) ||
	    (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
		errno = EPERM;
		return (-1);
	}
	return (0);
}

static char *file_text(int fd)
{
	size_t used = 0;
	ssize_t got;
	char *text = malloc(SIZE_MAX_BYTES + 1);

	if (text == NULL)
		return (NULL);
	while ((got = read(fd, text + used, SIZE_MAX_BYTES + 1 - used)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			goto fail;
		used += (size_t)got;
		if (used > SIZE_MAX_BYTES) {
			errno = EFBIG;
			goto fail;
		}
	}
	text[used] = '\0';
	return (text);

fail:
	free(text);
	return (NULL);
}

static int text_split(struct environment *environment)
{
	size_t lines = 1;
	char *rest = environment->text, *line, *equals;

	for (const char *c = rest; *c != '\0'; c++)
		lines += *c == '\n';
	environment->variables = calloc(lines, sizeof(struct variable));
	if (environment->variables == NULL)
		return (-1);

	while ((line = strsep(&rest, "\n")) != NULL) {
		equals = strchr(line, '=');
		if (equals == NULL)
			continue;
		*equals = '\0';
		if (environment_allows(line))
			environment->variables[environment->count++] = (struct variable){line, equals + 1};
	}
	return (0);
}

int environment_read(struct environment *environment, const char *path)
{
	int saved, fd, rv = -1;

	memset(environment, 0, sizeof(*environment));
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return (-1);
	if (file_check(fd) == 0 && (environment->text = file_text(fd)) != NULL)
		rv = text_split(environment);

	saved = errno;
	close(fd);
	if (rv < 0)
		environment_free(environment);
	errno = saved;
	return (rv);
}

void environment_free(struct environment *environment)
{
	free(environment->variables);
	free(environment->text);
	memset(environment, 0, sizeof(*environment));
}
