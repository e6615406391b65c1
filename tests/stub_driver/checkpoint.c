/* The state machine of the checkpoint API. */
#include "libcuda.h"
#include <dirent.h>
#include <sys/sendfile.h>

static int copy(int pid, const char *from, const char *to)
{
	char source[512], target[512];
	struct stat size;
	off_t done = 0;
	int in = open(stub_path(source, from, pid), O_RDWR | O_CLOEXEC), out, rc = OK;

	if (in < 0)
		return OK;
	out = open(stub_path(target, to, pid), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (out < 0 || fstat(in, &size) || ftruncate(out, size.st_size))
		rc = OUT_OF_MEMORY;
	while (rc == OK && done < size.st_size)
		if (sendfile(out, in, &done, size.st_size - done) <= 0)
			rc = OUT_OF_MEMORY;
	if (rc == OK && ftruncate(in, 0))
		rc = OUT_OF_MEMORY;
	close(in);
	close(out);
	return rc;
}

/* Take as long as the devices need for it; processes of one device wait for each other. */
static void take_time(const struct proc *p)
{
	long long speed = setting_number("speed", 0);

	for (int i = 0; speed > 0 && i < GPUS; i++) {
		if (p->bytes[i] == 0)
			continue;
		int busy = stub_lock("busy", i + 1);
		wait_ms(p->bytes[i] * 1000 / speed);
		close(busy);
	}
}

int fits(int pid, const struct proc *mine)
{
	struct gpu gpus[GPUS];
	int n = read_gpus(gpus);
	long long used[GPUS], lag = setting_number("free_lag_ms", 0);
	const char *dir = getenv("STUB_DIR");
	DIR *d = opendir(dir ? dir : ".");
	struct dirent *entry;
	struct proc other;
	int number;

	for (int i = 0; i < n; i++)
		used[i] = gpus[i].base;
	while (d && (entry = readdir(d)))
		if (sscanf(entry->d_name, "proc.%d", &number) == 1 && number != pid && read_proc(number, &other) == 0 &&
		    in_use(&other, lag))
			for (int i = 0; i < n; i++)
				used[i] += other.bytes[i];
	if (d)
		closedir(d);
	for (int i = 0; i < n; i++)
		if (mine->bytes[i] > 0 && used[i] + mine->bytes[i] > gpus[i].total)
			return 0;
	return 1;
}

int step(const char *op, int pid, int from, int to, const char *args, unsigned timeout_ms)
{
	struct fault fault;
	struct proc p;
	int rc = OK, lock;

	fault = take_fault(op, pid);
	say_begin(op, pid);
	if (fault.due && !fault.after) {
		/* A lock that waits for work which never ends. */
		if (fault.rc == NOT_READY && fault.delay_ms < 0)
			wait_ms(timeout_ms ? timeout_ms : 86400000LL);
		wait_ms(fault.delay_ms);
		if (fault.rc != OK) {
			lock = stub_lock("lock", 0);
			if (fault.state >= 0 && read_proc(pid, &p) == 0) {
				p.state = fault.state;
				write_proc(pid, &p);
			}
			close(lock);
			return say_end(op, pid, fault.rc, args);
		}
	}
	if (read_proc(pid, &p) == 0 && p.state == from && to != RESTORING && (to == CHECKPOINTED || from == CHECKPOINTED))
		take_time(&p);
	lock = stub_lock("lock", 0);
	if (read_proc(pid, &p) < 0)
		rc = NOT_INITIALIZED;
	else if (p.stuck)
		rc = from == CHECKPOINTED ? OPERATING_SYSTEM : ILLEGAL_STATE;
	else if (p.state != from)
		rc = ILLEGAL_STATE;
	else if (from == CHECKPOINTED && !fits(pid, &p)) {
		p.stuck = 1;
		rc = OUT_OF_MEMORY;
		write_proc(pid, &p);
	}
	if (rc == OK && to == CHECKPOINTED)
		rc = copy(pid, "vram", "host");
	if (rc == OK && from == CHECKPOINTED && to != RESTORING)
		rc = copy(pid, "host", "vram");
	if (rc == OK) {
		p.state = to;
		p.changed_ms = now_ms();
		write_proc(pid, &p);
	}
	close(lock);
	if (fault.due && fault.after) {
		wait_ms(fault.delay_ms);
		rc = fault.rc;
	}
	return say_end(op, pid, rc, args);
}

/* With the setting "peers" a running process gives no answer while another one is locked, as NCCL peers do. */
static int waits_for_peer(int pid)
{
	const char *dir = getenv("STUB_DIR");
	DIR *d = opendir(dir ? dir : ".");
	struct dirent *entry;
	struct proc mine, other;
	int number, locked = 0;

	if (read_proc(pid, &mine) == 0 && mine.state == RUNNING)
		while (d && (entry = readdir(d)))
			if (sscanf(entry->d_name, "proc.%d", &number) == 1 && number != pid &&
			    read_proc(number, &other) == 0)
				locked |= other.state == LOCKED;
	if (d)
		closedir(d);
	return locked;
}

API int cuCheckpointProcessGetState(int pid, int *state)
{
	struct proc p;
	struct fault fault = take_fault("state", pid);

	while (setting_number("peers", 0) && waits_for_peer(pid))
		wait_ms(5);
	if (fault.due) {
		wait_ms(fault.delay_ms);
		if (fault.rc != OK)
			return fault.rc;
	}
	if (read_proc(pid, &p) < 0)
		return NOT_INITIALIZED;
	*state = p.state;
	return OK;
}

API int cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
	struct proc p;
	struct fault fault = take_fault("tid", pid);

	wait_ms(fault.delay_ms);
	if (fault.due && fault.rc != OK)
		return fault.rc;
	if (read_proc(pid, &p) < 0)
		return NOT_INITIALIZED;
	*tid = pid;
	return OK;
}

API int cuCheckpointProcessLock(int pid, struct lock_args *args)
{
	char text[256] = "-";

	if (args)
		hex(text, args, sizeof(*args));
	if (args && args->zero0)
		return INVALID_VALUE;
	return step("lock", pid, RUNNING, LOCKED, text, args ? args->timeout_ms : 0);
}

API int cuCheckpointProcessCheckpoint(int pid, struct checkpoint_args *args)
{
	char text[256] = "-";

	if (args)
		hex(text, args, sizeof(*args));
	if (args && args->custom)
		return begin("checkpoint", pid, args->custom);
	return step("checkpoint", pid, LOCKED, CHECKPOINTED, text, 0);
}

API int cuCheckpointProcessRestore(int pid, struct restore_args *args)
{
	char text[2048] = "-";
	int rc;

	/* The pairs in place of their address. */
	if (args && args->n <= GPUS && args->pairs)
		hex(text, args->pairs, args->n * sizeof(struct pair));
	rc = move_devices(pid, args);
	if (rc != OK) {
		say_begin("restore", pid);
		return say_end("restore", pid, rc, text);
	}
	if (args && args->custom)
		return begin("restore", pid, args->custom);
	return step("restore", pid, CHECKPOINTED, LOCKED, text, 0);
}

API int cuCheckpointProcessUnlock(int pid, void *args)
{
	char text[256] = "-";

	if (args)
		hex(text, args, 64);
	return step("unlock", pid, LOCKED, RUNNING, text, 0);
}
