/* libnvidia-ml.so.1 for tests: what it says follows from the state that libcuda.c keeps. */
#include "stub.h"
#include <dirent.h>

enum { OK, UNINITIALIZED, INVALID, UNSUPPORTED, NOT_FOUND = 6, TOO_SMALL, NO_DRIVER = 9, LOST = 15, BAD_VERSION = 25 };
typedef unsigned long long u64;

struct device {
	int index;
	struct gpu gpu;
};
struct process { /* v2 and v3 */
	unsigned pid;
	u64 used;
	unsigned gpu_instance, compute_instance;
};
struct memory {
	u64 total, free, used;
};
struct memory_v2 {
	unsigned version;
	u64 total, reserved, free, used;
};
struct sample {
	unsigned pid;
	u64 time_us;
	unsigned cores, memory, encoder, decoder;
};
_Static_assert(sizeof(struct sample) == 32, "ABI");
_Static_assert(sizeof(struct process) == 24 && sizeof(struct memory_v2) == 40, "ABI");

static struct device devices[GPUS];
static int count, opened;

/* Add up what is used of device *index, and list who uses it. */
static u64 scan(int index, struct process *out, unsigned room, unsigned *n)
{
	char how[64], own[512], text[64];
	const char *dir = getenv("STUB_DIR");
	DIR *d = opendir(dir ? dir : ".");
	struct dirent *entry;
	long long lag = setting_number("free_lag_ms", 0);
	u64 used = 0;
	int pid;

	*n = 0;
	setting(how, "nvml_bytes", "real");
	while (d && (entry = readdir(d))) {
		struct proc p;
		FILE *f;

		if (sscanf(entry->d_name, "proc.%d", &pid) != 1 || read_proc(pid, &p) < 0)
			continue;
		if (in_use(&p, lag))
			used += p.bytes[index];
		if (p.state == CHECKPOINTED || (p.bytes[index] == 0 && strcmp(how, "zero") != 0))
			continue;
		/* nvml.PID: real, zero, none or hidden, for this process alone. */
		snprintf(text, sizeof(text), "%s", how);
		f = fopen(stub_path(own, "nvml", pid), "re");
		if (f && fscanf(f, "%63s", text) != 1)
			abort();
		if (f)
			fclose(f);
		if (strcmp(text, "hidden") == 0)
			continue;
		if (out && *n < room)
			out[*n] = (struct process){ pid, strcmp(text, "zero") == 0 ? 0 :
						    strcmp(text, "none") == 0 ? ~0ULL : (u64)p.bytes[index], ~0u, ~0u };
		++*n;
	}
	if (d)
		closedir(d);
	return used;
}

API int nvmlInitWithFlags(unsigned flags)
{
	struct gpu gpus[GPUS];

	(void)flags;
	count = read_gpus(gpus);
	if (count < 0)
		return NO_DRIVER;
	for (int i = 0; i < count; i++)
		devices[i] = (struct device){ i, gpus[i] };
	opened++;
	return OK;
}

API int nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

API int nvmlShutdown(void)
{
	return opened ? opened--, OK : UNINITIALIZED;
}

API const char *nvmlErrorString(int rc)
{
	return rc == OK ? "Success" : rc == NO_DRIVER ? "Driver Not Loaded" : "stub error";
}

API int nvmlSystemGetDriverVersion(char *out, unsigned n)
{
	char text[64];

	snprintf(out, n, "%s", setting(text, "driver", "580.95.05"));
	return OK;
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = setting_number("version", 13000);
	return OK;
}

API int nvmlDeviceGetCount_v2(unsigned *n)
{
	*n = count;
	return opened ? OK : UNINITIALIZED;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct device **out)
{
	if (i >= (unsigned)count)
		return INVALID;
	if (setting_number("lost", -1) == (int)i)
		return LOST;
	*out = &devices[i];
	return OK;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **out)
{
	for (int i = 0; i < count; i++)
		if (strcmp(devices[i].gpu.uuid, uuid) == 0) {
			*out = &devices[i];
			return OK;
		}
	return NOT_FOUND;
}

API int nvmlDeviceGetUUID(struct device *d, char *out, unsigned n)
{
	snprintf(out, n, "%s", d->gpu.uuid);
	return OK;
}

API int nvmlDeviceGetName(struct device *d, char *out, unsigned n)
{
	(void)d;
	snprintf(out, n, "Stub GPU");
	return OK;
}

API int nvmlDeviceGetMinorNumber(struct device *d, unsigned *minor)
{
	*minor = setting_number("first_minor", 0) + d->index;
	return OK;
}

API int nvmlDeviceGetMemoryInfo(struct device *d, struct memory *m)
{
	unsigned n;

	m->total = d->gpu.total;
	m->used = d->gpu.base + scan(d->index, NULL, 0, &n);
	m->free = m->total - m->used;
	return OK;
}

API int nvmlDeviceGetMemoryInfo_v2(struct device *d, struct memory_v2 *m)
{
	unsigned n;

	if (m->version != (sizeof(*m) | 2u << 24))
		return BAD_VERSION;
	m->total = d->gpu.total;
	m->reserved = d->gpu.base;
	m->used = scan(d->index, NULL, 0, &n);
	m->free = m->total - m->used - m->reserved;
	return OK;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *n, struct process *out)
{
	unsigned room = out ? *n : 0;

	scan(d->index, out, room, n);
	return *n > room ? TOO_SMALL : OK;
}

/* works.PID: that process has computed just now. A call without room says how much is needed. */
API int nvmlDeviceGetProcessUtilization(struct device *d, struct sample *out, unsigned *n, u64 since_us)
{
	const char *dir = getenv("STUB_DIR");
	DIR *folder = opendir(dir ? dir : ".");
	struct dirent *entry;
	struct proc p;
	unsigned room = out ? *n : 0;
	u64 now_us = now_ms() * 1000ULL;
	int pid;

	*n = 0;
	while (folder && (entry = readdir(folder))) {
		if (sscanf(entry->d_name, "works.%d", &pid) != 1 || read_proc(pid, &p) < 0 || p.bytes[d->index] == 0 ||
		    p.state != RUNNING || now_us < since_us)
			continue;
		if (*n < room)
			out[*n] = (struct sample){ pid, now_us, 50, 10, 0, 0 };
		++*n;
	}
	if (folder)
		closedir(folder);
	return *n == 0 ? NOT_FOUND : *n > room ? TOO_SMALL : OK;
}

/* The share of the time in percent; the setting utilization -1: not supported. */
API int nvmlDeviceGetUtilizationRates(struct device *d, unsigned rates[2])
{
	struct sample row;
	unsigned n = 1;

	if (setting_number("utilization", 0) < 0)
		return UNSUPPORTED;
	rates[0] = nvmlDeviceGetProcessUtilization(d, &row, &n, 0) == OK ? 50 : 0;
	rates[1] = rates[0] / 2;
	return OK;
}

API int nvmlDeviceGetPersistenceMode(struct device *d, unsigned *mode)
{
	(void)d;
	*mode = setting_number("persistence", 1);
	return OK;
}

API int nvmlDeviceGetMigMode(struct device *d, unsigned *now, unsigned *pending)
{
	long long mig = setting_number("mig", 0);

	(void)d;
	*now = *pending = mig == 1;
	return mig < 0 ? UNSUPPORTED : OK;
}
