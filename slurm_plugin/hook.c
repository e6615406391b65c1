/* Runs interleave-hook. Needs no Slurm, so that tests can compile it alone. */

#include "interleave.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The hook gives its agent 2 s; this limit is for a host too slow to start it. The same as in common.sh. */
#define LIMIT_MS 5000
#define POLL_MS 10

#define SEARCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *const folders[] = {
    "/opt/slurm-interleave/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin",
};

static int hook_find(const char *hook, char *path, size_t size)
{
	if (hook[0] != '\0')
		return (snprintf(path, size, "%s", hook) < (int)size ? 0 : -1);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, size, "%s/interleave-hook", folders[i]);
		if (access(path, X_OK) == 0)
			return (0);
	}
	return (-1);
}

/* Wait for *pid*, which leads a process group of its own; end the group at the limit. */
static int hook_wait(pid_t pid)
{
	const struct timespec pause = {0, POLL_MS * 1000000L};
	int status;

	for (int waited = 0; waited < LIMIT_MS; waited += POLL_MS) {
		pid_t ended = waitpid(pid, &status, WNOHANG);

		if (ended == pid)
			return (WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1);
		if (ended < 0 && errno != EINTR)
			return (-1);
		nanosleep(&pause, NULL);
	}
	kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return (-1);
}

/* Nothing of slurmstepd's signals, files of output or environment reaches the hook. */
static int hook_spawn(const char *path, char *const argv[], pid_t *pid)
{
	static char search_path[] = "PATH=" SEARCH_PATH;
	char *const envp[] = {search_path, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int rc;

	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&files) != 0)
		return (-1);
	if (posix_spawnattr_init(&attributes) != 0) {
		posix_spawn_file_actions_destroy(&files);
		return (-1);
	}
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	rc = posix_spawn(pid, path, &files, &attributes, argv, envp);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&files);
	return (rc == 0 ? 0 : -1);
}

int hook_job_start(const char *hook, const char *run_dir, const struct job_start *job)
{
	char path[PATH_MAX], words[14][PATH_MAX + 32];
	char verb[] = "job-start";
	char *argv[17] = {path, verb};
	size_t count = 9;
	pid_t pid;

	if (hook_find(hook, path, sizeof(path)) < 0)
		return (-1);
	snprintf(words[0], sizeof(words[0]), "--socket=%s/agent.sock", run_dir);
	snprintf(words[1], sizeof(words[1]), "--job=%u", job->job_id);
	snprintf(words[2], sizeof(words[2]), "--uid=%u", job->uid);
	snprintf(words[3], sizeof(words[3]), "--gid=%u", job->gid);
	snprintf(words[4], sizeof(words[4]), "--user=%s", job->user);
	snprintf(words[5], sizeof(words[5]), "--account=%s", job->account);
	snprintf(words[6], sizeof(words[6]), "--partition=%s", job->partition);
	snprintf(words[7], sizeof(words[7]), "--restarts=%s", job->restarts);
	snprintf(words[8], sizeof(words[8]), "--group=%s", job->group);
	if (job->role[0] != '\0')
		snprintf(words[count++], sizeof(words[0]), "--role=%s", job->role);
	if (job->backend[0] != '\0')
		snprintf(words[count++], sizeof(words[0]), "--backend=%s", job->backend);
	if (job->max_wait[0] != '\0')
		snprintf(words[count++], sizeof(words[0]), "--max-wait=%s", job->max_wait);
	if (job->profile[0] != '\0')
		snprintf(words[count++], sizeof(words[0]), "--profile=%s", job->profile);
	if (job->max_slowdown[0] != '\0')
		snprintf(words[count++], sizeof(words[0]), "--max-slowdown=%s", job->max_slowdown);
	for (size_t i = 0; i < count; i++)
		argv[i + 2] = words[i];
	if (hook_spawn(path, argv, &pid) < 0)
		return (-1);
	return (hook_wait(pid));
}
