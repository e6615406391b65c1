/* A job: its calls wait while it is locked; its memory is a file. */
#include "libcuda.h"
#include <sys/mman.h>

unsigned retained;
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
