/* Devices and their names. */
#include "libcuda.h"

void parse_uuid(const char *text, struct uuid *out)
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
int move_devices(int pid, const struct restore_args *args)
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

/* CUDA_VISIBLE_DEVICES names devices by UUID or number; unset: all. */
int visible(int *devices)
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
