/*
 * libcuda.so.1 for tests: the state machine of the checkpoint API, and enough of the rest for a job that
 * owns device memory. Layouts and codes are those of cuda.h 13.0; tests compare them with cuda-bindings.
 */
#include "stub.h"
#include <dirent.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, OPERATING_SYSTEM = 304,
	INVALID_CONTEXT = 201, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801
};

struct lock_args {
	unsigned timeout_ms, zero0;
	uint64_t zero1[7];
};
struct checkpoint_args {
	void *custom;
	char zero[56];
};
struct uuid {
	unsigned char bytes[16];
};
struct pair {
	struct uuid from, to;
};
struct restore_args {
	struct pair *pairs;
	unsigned n, pad;
	void *custom;
	char zero[40];
};
_Static_assert(sizeof(struct lock_args) == 64, "ABI");
_Static_assert(sizeof(struct checkpoint_args) == 64, "ABI");
_Static_assert(sizeof(struct restore_args) == 64, "ABI");

struct extent { /* CUcheckpointCustomStoragePerDeviceData */
	uint64_t address;
	size_t size;
	void *stream;
};
struct storage { /* CUcheckpointCustomStorageInfo */
	void *handle;
	struct extent *extents;
	unsigned n;
};
struct operation {
	int pid, to;
	char *base;
	size_t size;
	struct storage info;
	struct extent extents[GPUS];
};
struct fault {
	int due, after, rc, delay_ms, state;
};

static void say(const char *text)
{
	char path[512];
	int fd = open(stub_path(path, "calls", 0), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		abort();
	close(fd);
}

static void say_begin(const char *op, int pid)
{
	char row[128];

	snprintf(row, sizeof(row), "begin %s %d %lld %d\n", op, pid, now_ms(), getpid());
	say(row);
}

static int say_end(const char *op, int pid, int rc, const char *args)
{
	char row[4096];

	snprintf(row, sizeof(row), "end %s %d %d %lld %s\n", op, pid, rc, now_ms(), args);
	say(row);
	return rc;
}

static void hex(char *out, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sprintf(out + 2 * i, "%02x", ((const unsigned char *)data)[i]);
}

/* Take the first row that is due for this call, and count it. */
static struct fault take_fault(const char *op, int pid)
{
	char path[512], row[256], name[32], when[16], kept[16384] = "";
	int lock = stub_lock("lock", 0), for_pid, rc, delay, state, count;
	FILE *f = fopen(stub_path(path, "faults", 0), "re");
	struct fault due = { .state = -1 };

	while (f && fgets(row, sizeof(row), f)) {
		if (sscanf(row, "%31s %d %15s %d %d %d %d", name, &for_pid, when, &rc, &delay, &state, &count) != 7)
			continue;
		if (!due.due && count != 0 && strcmp(name, op) == 0 && (for_pid == 0 || for_pid == pid)) {
			due = (struct fault){ 1, strcmp(when, "after") == 0, rc, delay, state };
			count -= count > 0;
		}
		snprintf(kept + strlen(kept), sizeof(kept) - strlen(kept), "%s %d %s %d %d %d %d\n", name, for_pid,
			 when, rc, delay, state, count);
	}
	if (f) {
		fclose(f);
		f = fopen(path, "we");
		if (f) {
			fputs(kept, f);
			fclose(f);
		}
	}
	close(lock);
	return due;
}

static void wait_ms(long long ms)
{
	if (ms > 0)
		usleep(ms * 1000);
}

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

static int fits(int pid, const struct proc *mine)
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

static int step(const char *op, int pid, int from, int to, const char *args, unsigned timeout_ms)
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

static void parse_uuid(const char *text, struct uuid *out)
{
	unsigned byte, n = 0;

	for (text += strncmp(text, "GPU-", 4) == 0 ? 4 : 0; *text && n < 16; text++)
		if (*text != '-' && sscanf(text, "%2x", &byte) == 1) {
			out->bytes[n++] = byte;
			text++;
		}
}

static int device_of(const struct uuid *wanted, const struct gpu *gpus, int n)
{
	struct uuid uuid;

	for (int i = 0; i < n; i++) {
		parse_uuid(gpus[i].uuid, &uuid);
		if (memcmp(&uuid, wanted, 16) == 0)
			return i;
	}
	return -1;
}

/* The map must name every device of the node, once on each side. Moves what *pid has; returns INVALID_VALUE else. */
static int move_devices(int pid, const struct restore_args *args)
{
	struct gpu gpus[GPUS];
	int n = read_gpus(gpus), from, to, seen_from = 0, seen_to = 0, lock;
	struct proc p, moved;

	if (!args || args->n == 0)
		return OK;
	if (!args->pairs || (int)args->n != n)
		return INVALID_VALUE;
	lock = stub_lock("lock", 0);
	if (read_proc(pid, &p) == 0 && p.state == CHECKPOINTED) {
		moved = p;
		memset(moved.bytes, 0, sizeof(moved.bytes));
		for (int i = 0; i < n; i++) {
			from = device_of(&args->pairs[i].from, gpus, n);
			to = device_of(&args->pairs[i].to, gpus, n);
			if (from < 0 || to < 0)
				break;
			seen_from |= 1 << from;
			seen_to |= 1 << to;
			moved.bytes[to] = p.bytes[from];
		}
		if (seen_from == (1 << n) - 1 && seen_to == seen_from)
			write_proc(pid, &moved);
		else
			n = -1;
	}
	close(lock);
	return n < 0 ? INVALID_VALUE : OK;
}

static int version(void)
{
	return setting_number("version", 13000);
}

API int cuInit(unsigned flags)
{
	struct gpu gpus[GPUS];
	struct fault fault = take_fault("init", getpid());

	(void)flags;
	wait_ms(fault.delay_ms);
	return fault.due ? fault.rc : read_gpus(gpus) > 0 ? OK : NO_DEVICE;
}

API int cuDriverGetVersion(int *v)
{
	*v = version();
	return OK;
}

API int cuGetErrorName(int rc, const char **name)
{
	static __thread char text[32];

	snprintf(text, sizeof(text), "CUDA_ERROR_%d", rc);
	*name = text;
	return OK;
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

/*
 * Custom storage: the memory of the process is mapped here, device by device, until the operation is completed.
 * Which bytes are of which device the stub does not know: it cuts the file in the order of the devices.
 */
static unsigned retained; /* contexts of this process, a bit for each device */

static int begin(const char *op, int pid, struct storage ***out)
{
	int back = strcmp(op, "restore") == 0, fd, rc;
	struct operation *o = calloc(1, sizeof(*o));
	char path[512];
	struct proc p;

	if (version() < 13040 || !o)
		return NOT_SUPPORTED;
	if (read_proc(pid, &p) == 0)
		for (int i = 0; i < GPUS; i++)
			if (p.bytes[i] > 0 && !(retained & 1u << i))
				return INVALID_CONTEXT;
	rc = step(op, pid, back ? CHECKPOINTED : LOCKED, back ? RESTORING : CHECKPOINTING, "custom", 0);
	if (rc != OK || read_proc(pid, &p) < 0)
		return rc;
	for (int i = 0; i < GPUS; i++)
		o->size += p.bytes[i];
	fd = open(stub_path(path, "vram", pid), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0 || (back && ftruncate(fd, o->size)))
		return OUT_OF_MEMORY;
	o->base = mmap(NULL, o->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	o->pid = pid;
	o->to = back ? LOCKED : CHECKPOINTED;
	o->info = (struct storage){ o, o->extents, 0 };
	for (int i = 0, at = 0; i < GPUS; at += p.bytes[i++])
		if (p.bytes[i] > 0)
			o->extents[o->info.n++] =
				(struct extent){ (uint64_t)(o->base + at), p.bytes[i], (void *)(uintptr_t)(i + 1) };
	*out = (void *)&o->info;
	return OK;
}

API int cuCheckpointOperationComplete(struct operation *o)
{
	struct fault fault = take_fault("complete", o->pid);
	char path[512];
	struct proc p;
	int lock;

	say_begin("complete", o->pid);
	if (fault.due && !fault.after)
		wait_ms(fault.delay_ms);
	if (fault.due && !fault.after && fault.rc != OK)
		return say_end("complete", o->pid, fault.rc, "-");
	munmap(o->base, o->size);
	lock = stub_lock("lock", 0);
	if (o->to == CHECKPOINTED && truncate(stub_path(path, "vram", o->pid), 0))
		abort();
	if (read_proc(o->pid, &p) == 0) {
		p.state = o->to;
		p.changed_ms = now_ms();
		write_proc(o->pid, &p);
	}
	close(lock);
	if (fault.due && fault.after)
		wait_ms(fault.delay_ms);
	return say_end("complete", o->pid, fault.due ? fault.rc : OK, "-");
}

/* Copies wait for whoever waits for their stream; what nobody waits for never comes. */
#define COPIES 64
static struct pending {
	void *to, *stream;
	const void *from;
	size_t n;
} pending[COPIES];

static int copied(const char *op, void *to, const void *from, size_t n, void *stream)
{
	struct fault fault = take_fault(op, getpid());

	wait_ms(fault.delay_ms);
	if (fault.due && fault.rc != OK)
		return fault.rc;
	for (int i = 0; i < COPIES; i++)
		if (pending[i].n == 0) {
			pending[i] = (struct pending){ to, stream, from, n };
			return OK;
		}
	return OUT_OF_MEMORY;
}

API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *stream)
{
	return copied("copy_out", to, (void *)from, n, stream);
}

API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream)
{
	return copied("copy_in", (void *)to, from, n, stream);
}

API int cuStreamSynchronize(void *stream)
{
	for (int i = 0; i < COPIES; i++)
		if (pending[i].n > 0 && pending[i].stream == stream) {
			memcpy(pending[i].to, pending[i].from, pending[i].n);
			pending[i].n = 0;
		}
	return OK;
}

API int cuMemHostRegister_v2(void *address, size_t n, unsigned flags)
{
	struct fault fault = take_fault("pin", getpid());

	(void)flags;
	return fault.due ? fault.rc : address && n ? OK : INVALID_VALUE;
}

API int cuMemHostUnregister(void *address)
{
	return address ? OK : INVALID_VALUE;
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

/* A job: its calls wait while it is locked; its memory is a file. */
static char *base;
static size_t top;
static int memory = -1;
static __thread int current;

static void gate(void)
{
	struct proc p;

	while (read_proc(getpid(), &p) == 0 && p.state != RUNNING && p.state != FAILED)
		usleep(1000);
}

static size_t arena(void)
{
	return (size_t)256 << 20;
}

/* CUDA_VISIBLE_DEVICES names devices by UUID or number; unset: all. */
static int visible(int *devices)
{
	struct gpu gpus[GPUS];
	int n = read_gpus(gpus), found = 0;
	char names[2048], *name, *rest = names;

	if (!getenv("CUDA_VISIBLE_DEVICES")) {
		for (int i = 0; i < n; i++)
			devices[i] = i;
		return n;
	}
	snprintf(names, sizeof(names), "%s", getenv("CUDA_VISIBLE_DEVICES"));
	while ((name = strsep(&rest, ",")) && *name)
		for (int i = 0; i < n; i++)
			if (strcmp(gpus[i].uuid, name) == 0 || (strlen(name) < 3 && atoi(name) == i))
				devices[found++] = i;
	return found;
}

API int cuDeviceGetCount(int *n)
{
	int devices[GPUS];

	*n = visible(devices);
	return OK;
}

API int cuDeviceGet(int *device, int i)
{
	*device = i;
	return OK;
}

API int cuDeviceGetUuid_v2(struct uuid *uuid, int device)
{
	struct gpu gpus[GPUS];
	int devices[GPUS];

	if (device >= visible(devices) || read_gpus(gpus) < 1)
		return INVALID_VALUE;
	parse_uuid(gpus[devices[device]].uuid, uuid);
	return OK;
}

static void context_takes(int device, long long bytes)
{
	int lock = stub_lock("lock", 0);
	struct proc p;

	if (read_proc(getpid(), &p) == 0) {
		p.bytes[device] += bytes;
		write_proc(getpid(), &p);
	}
	close(lock);
}

API int cuDevicePrimaryCtxRetain(void **context, int device)
{
	char path[512];
	int devices[GPUS], lock;
	struct proc p;

	if (device >= visible(devices))
		return INVALID_VALUE;
	if (!base) {
		memory = open(stub_path(path, "vram", getpid()), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		base = mmap(NULL, arena(), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
		lock = stub_lock("lock", 0);
		if (read_proc(getpid(), &p) < 0)
			write_proc(getpid(), &p);
		close(lock);
	}
	current = devices[device];
	*context = base + device;
	if (!(retained & 1u << current)) {
		retained |= 1u << current;
		context_takes(current, getenv("STUB_JOB") ? 0 : setting_number("context", 0));
	}
	return OK;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
	int devices[GPUS];

	if (device >= visible(devices) || !(retained & 1u << devices[device]))
		return INVALID_CONTEXT;
	retained &= ~(1u << devices[device]);
	context_takes(devices[device], -setting_number("context", 0));
	return OK;
}

/* A stream is the number of its device, from 1 on. */
API int cuStreamGetCtx(void *stream, void **context)
{
	*context = base + (uintptr_t)stream - 1;
	return OK;
}

API int cuCtxGetDevice(int *device)
{
	*device = current;
	return OK;
}

API int cuCtxSetCurrent(void *context)
{
	int devices[GPUS], device = (char *)context - base;

	if (!base || device < 0 || device >= visible(devices))
		return INVALID_VALUE;
	current = devices[device];
	return OK;
}

API int cuMemAlloc_v2(uint64_t *address, size_t n)
{
	struct gpu gpus[GPUS];
	struct proc p;
	int lock, rc = OK;

	gate();
	if (!base)
		return NOT_INITIALIZED;
	n = (n + 4095) & ~(size_t)4095;
	lock = stub_lock("lock", 0);
	if (read_proc(getpid(), &p) < 0 || read_gpus(gpus) < 1)
		rc = NOT_INITIALIZED;
	p.bytes[current] += n;
	if (rc == OK && (top + n > arena() || !fits(getpid(), &p) || ftruncate(memory, top + n)))
		rc = OUT_OF_MEMORY;
	if (rc == OK) {
		write_proc(getpid(), &p);
		*address = (uint64_t)(base + top);
		top += n;
	}
	close(lock);
	return rc;
}

/* The last one alone, which is on the current device. */
API int cuMemFree_v2(uint64_t address)
{
	struct proc p;
	size_t at = (char *)address - base;
	int lock, rc = INVALID_VALUE;

	gate();
	if (!base || at >= top)
		return rc;
	lock = stub_lock("lock", 0);
	if (read_proc(getpid(), &p) == 0 && !ftruncate(memory, at)) {
		p.bytes[current] -= top - at;
		top = at;
		write_proc(getpid(), &p);
		rc = OK;
	}
	close(lock);
	return rc;
}

API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n)
{
	gate();
	memcpy((void *)to, from, n);
	return OK;
}

API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n)
{
	gate();
	memcpy(to, (void *)from, n);
	return OK;
}

API int cuGetProcAddress_v2(const char *name, void **fn, int wanted, uint64_t flags, int *status);

#define ENTRY(name, since) { #name, name, since }
static const struct {
	const char *name;
	void *fn;
	int since;
} table[] = {
	ENTRY(cuInit, 2000),
	ENTRY(cuDriverGetVersion, 2020),
	ENTRY(cuDeviceGetCount, 2000),
	ENTRY(cuDeviceGet, 2000),
	{ "cuDeviceGetUuid", cuDeviceGetUuid_v2, 11040 },
	ENTRY(cuGetErrorName, 6000),
	{ "cuGetErrorString", cuGetErrorName, 6000 },
	ENTRY(cuDevicePrimaryCtxRetain, 7000),
	ENTRY(cuCtxSetCurrent, 4000),
	{ "cuMemAlloc", cuMemAlloc_v2, 3020 },
	{ "cuMemFree", cuMemFree_v2, 3020 },
	{ "cuMemcpyHtoD", cuMemcpyHtoD_v2, 3020 },
	{ "cuMemcpyDtoH", cuMemcpyDtoH_v2, 3020 },
	{ "cuGetProcAddress", cuGetProcAddress_v2, 12000 },
	ENTRY(cuCheckpointProcessGetState, 12080),
	ENTRY(cuCheckpointProcessGetRestoreThreadId, 12080),
	ENTRY(cuCheckpointProcessLock, 12080),
	ENTRY(cuCheckpointProcessCheckpoint, 12080),
	ENTRY(cuCheckpointProcessRestore, 12080),
	ENTRY(cuCheckpointProcessUnlock, 12080),
	ENTRY(cuCheckpointOperationComplete, 13040),
};

API int cuGetProcAddress_v2(const char *name, void **fn, int wanted, uint64_t flags, int *status)
{
	(void)flags;
	*fn = NULL;
	if (status)
		*status = 1; /* no such symbol */
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (strcmp(table[i].name, name) != 0)
			continue;
		int there = table[i].since <= version() && wanted >= table[i].since;

		if (there)
			*fn = table[i].fn;
		if (status)
			*status = there ? 0 : 2; /* of a later version */
		return there ? OK : NOT_FOUND;
	}
	return NOT_FOUND;
}
