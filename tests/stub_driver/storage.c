/*
 * Custom storage: the memory of the process is mapped here, device by device, until the operation is completed.
 * Which bytes are of which device the stub does not know: it cuts the file in the order of the devices.
 */
#include "libcuda.h"
#include <sys/mman.h>

struct operation {
	int pid, to;
	char *base;
	size_t size;
	struct storage info;
	struct extent extents[GPUS];
};

int begin(const char *op, int pid, struct storage ***out)
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
