/*
 * In slurmstepd, as root, for the batch script and for each step: hand the job what this node's agent wrote for it.
 * Nothing here may return an error: that would fail a job, or drain the node.
 */

#include "interleave.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "environment.h"
#include "jobvars.h"

static struct {
	bool usable; /* plugstack.conf could be read */
	struct args args;
	uint32_t job_id;
	struct environment environment;
} context;

int slurmstepd_init(spank_t sp, int ac, char **av)
{
	context.usable = args_parse(&context.args, ac, av) == 0;
	option_register(sp);
	return (0);
}

static const char *node_name(void)
{
	const char *name = getenv("SLURMD_NODENAME");

	return (name == NULL ? "" : name);
}

static void variable_set(spank_t sp, const char *name, const char *value)
{
	spank_err_t rc = spank_setenv(sp, name, value, 1);

	if (rc != ESPANK_SUCCESS)
		slurm_error("interleave: job %u: couldn't set %s: %s", context.job_id, name, spank_strerror(rc));
}

/* What chose this job's group in the user's shell must not choose that of a job which this one submits. */
static void submit_variables_unset(spank_t sp)
{
	for (int i = 0; i < SETTINGS; i++)
		for (int program = 0; program < PROGRAMS; program++)
			spank_unsetenv(sp, settings[i].variables[program]);
}

static void variables_set(spank_t sp)
{
	for (size_t i = 0; i < context.environment.count; i++)
		variable_set(sp, context.environment.variables[i].name, context.environment.variables[i].value);
}

/* The agent did not register the job: say whose it is, so that its first acquire can name the node. */
static void unregistered_set(spank_t sp, const char *group)
{
	char job_id[16];

	for (size_t i = 0; jobvars[i] != NULL; i++)
		spank_unsetenv(sp, jobvars[i]); /* of another node, where the step was launched */
	snprintf(job_id, sizeof(job_id), "%u", context.job_id);
	variable_set(sp, "INTERLEAVE_GROUP", group);
	variable_set(sp, "INTERLEAVE_JOB_ID", job_id);
	variable_set(sp, "INTERLEAVE_NODE", node_name());
}

static int environment_load(void)
{
	char run_dir[PATH_MAX], path[PATH_MAX];
	int length, saved;

	if (args_run_dir(&context.args, node_name(), run_dir, sizeof(run_dir)) < 0) {
		errno = ENAMETOOLONG;
		return (-1);
	}
	length = snprintf(path, sizeof(path), "%s/jobs/%u/environment", run_dir, context.job_id);
	if (length < 0 || (size_t)length >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return (-1);
	}
	if (environment_read(&context.environment, path) == 0)
		return (0);
	saved = errno;
	if (saved != ENOENT)
		slurm_error("interleave: job %u: couldn't read %s: %s", context.job_id, path, strerror(saved));
	errno = saved;
	return (-1);
}

/* An entry of the job's environment; empty where there is none. */
static void job_variable(spank_t sp, const char *name, char *value, int size)
{
	if (spank_getenv(sp, name, value, size) != ESPANK_SUCCESS)
		value[0] = '\0';
}

/*
 * The prolog did not register the job: 22.05 may start a requeued job without it, or the agent was away. Do it now;
 * the agent takes it twice without harm. Steps of one job may do so at the same time.
 */
static int registered_late(spank_t sp, const struct option_value *value)
{
	char run_dir[PATH_MAX], user[256] = "", account[256], partition[256], names[4096], restarts[16] = "";
	struct job_start job = {
	    .job_id = context.job_id,
	    .user = user,
	    .account = account,
	    .partition = partition,
	    .group = value->text[GROUP],
	    .restarts = restarts,
	    .role = value->text[ROLE],
	    .backend = value->text[BACKEND],
	    .max_wait = value->text[MAX_WAIT],
	    .profile = value->text[PROFILE],
	    .max_slowdown = value->text[MAX_SLOWDOWN],
	};
	uint32_t count = 0;
	struct passwd entry, *found = NULL;

	if (spank_get_item(sp, S_JOB_UID, &job.uid) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_GID, &job.gid) != ESPANK_SUCCESS ||
	    args_run_dir(&context.args, node_name(), run_dir, sizeof(run_dir)) < 0)
		return (-1);
	if (getpwuid_r(job.uid, &entry, names, sizeof(names), &found) == 0 && found != NULL)
		snprintf(user, sizeof(user), "%s", entry.pw_name);
	job_variable(sp, "SLURM_JOB_ACCOUNT", account, sizeof(account));
	job_variable(sp, "SLURM_JOB_PARTITION", partition, sizeof(partition));
	/* 0 in steps that do not know it, and SLURM_RESTART_COUNT may be that of the job which submitted this one. */
	if (spank_get_item(sp, S_SLURM_RESTART_COUNT, &count) == ESPANK_SUCCESS && count > 0)
		snprintf(restarts, sizeof(restarts), "%u", count);
	if (hook_job_start(context.args.hook, run_dir, &job) < 0)
		return (-1);
	return (environment_load());
}

int slurmstepd_post_opt(spank_t sp)
{
	const struct option_value *value = option_value();

	if (!context.usable || (value->given && value->text[GROUP][0] == '\0'))
		return (0);
	if (spank_get_item(sp, S_JOB_ID, &context.job_id) != ESPANK_SUCCESS)
		return (0);

	/* Looked for without the option too: 22.05 loses it in the batch step with --export=NONE. */
	if (environment_load() == 0 ||
	    (value->given && errno == ENOENT && registered_late(sp, value) == 0))
		variables_set(sp);
	else if (value->given)
		unregistered_set(sp, value->text[GROUP]);
	else
		return (0); /* This job did not ask for us. */
	submit_variables_unset(sp);
	return (0);
}

/* A plain srun would ask for the shard of one device, which the job has by its type; Slurm finds no such step GRES. */
static void shards_set(spank_t sp)
{
	char shards[16], request[32];

	job_variable(sp, "SLURM_SHARDS_ON_NODE", shards, sizeof(shards));
	if (shards[0] == '\0')
		return;
	snprintf(request, sizeof(request), SHARDS "%s", shards);
	variable_set(sp, "SLURM_GRES", request);
}

/* Once more: the binding of GPUs to tasks comes after the step's environment was made. */
int slurmstepd_task_init(spank_t sp)
{
	variables_set(sp);
	if (context.environment.count > 0)
		shards_set(sp);
	return (0);
}
