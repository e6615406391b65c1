/*
 * What both libraries share. All state is text in $STUB_DIR, under a lock, so that the agent's helpers, the
 * jobs and NVML see the same, and a killed process leaves nothing half done:
 *
 *   settings    rows "key value"; see setting() below for the keys
 *   gpus        rows "uuid total_bytes used_by_nobody_bytes"
 *   proc.PID    "state changed_ms stuck", then rows "device bytes"; absent: that process has no CUDA
 *   vram.PID    the bytes of its device memory; host.PID: their copy while it is checkpointed
 *   nvml.PID    what NVML says of its memory; works.PID: there while it computes
 *   faults      rows "op pid when rc delay_ms state count"; pid 0: any, count -1: always
 *   calls       rows "begin op pid now_ms caller", "end op pid rc now_ms args"
 */
#ifndef STUB_H
#define STUB_H
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define GPUS 16

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED, CHECKPOINTING, RESTORING };

struct gpu {
	char uuid[64];
	long long total, base;
};

struct proc {
	int state, stuck;
	long long changed_ms, bytes[GPUS];
};

static inline char *stub_path(char *out, const char *name, int pid)
{
	const char *dir = getenv("STUB_DIR");

	if (pid != 0)
		snprintf(out, 512, "%s/%s.%d", dir ? dir : ".", name, pid);
	else
		snprintf(out, 512, "%s/%s", dir ? dir : ".", name);
	return out;
}

/* Returns a descriptor; closing it, or death, unlocks. */
static inline int stub_lock(const char *name, int number)
{
	char path[512];
	int fd = open(stub_path(path, name, number), O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd >= 0)
		flock(fd, LOCK_EX);
	return fd;
}

static inline long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/*
 * version      what cuDriverGetVersion says (13000)
 * driver       what NVML says (580.95.05)
 * persistence  1 or 0 (1)
 * mig          1, 0, or -1 for a card without (0)
 * speed        bytes a second of one device, shared by its processes; 0: at once (0)
 * free_lag_ms  how long freed memory stays in use; -1: for ever (0)
 * peers        1: a running process gives no answer while another one is locked (0)
 * context      bytes that the context of a helper takes on each device that it retains (0)
 * nvml_bytes   of a process: real, zero or none (real)
 */
static inline char *setting(char *out, const char *key, const char *fallback)
{
	char path[512], name[64], value[64];
	FILE *f = fopen(stub_path(path, "settings", 0), "re");

	snprintf(out, 64, "%s", fallback);
	while (f && fscanf(f, "%63s %63s", name, value) == 2)
		if (strcmp(name, key) == 0)
			snprintf(out, 64, "%s", value);
	if (f)
		fclose(f);
	return out;
}

static inline long long setting_number(const char *key, long long fallback)
{
	char text[64], number[32];

	snprintf(number, sizeof(number), "%lld", fallback);
	return atoll(setting(text, key, number));
}

static inline int read_gpus(struct gpu *gpus)
{
	char path[512];
	FILE *f = fopen(stub_path(path, "gpus", 0), "re");
	int n = 0;

	if (!f)
		return -1;
	while (n < GPUS && fscanf(f, "%63s %lld %lld", gpus[n].uuid, &gpus[n].total, &gpus[n].base) == 3)
		n++;
	fclose(f);
	return n;
}

static inline int alive(int pid)
{
	char path[64], line[512], *after;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f || !fgets(line, sizeof(line), f)) {
		if (f)
			fclose(f);
		return 0;
	}
	fclose(f);
	after = strrchr(line, ')');
	return after && after[2] != 'Z' && after[2] != 'X';
}

/* Returns 0, or -1 where that process has no CUDA. */
static inline int read_proc(int pid, struct proc *p)
{
	char path[512];
	FILE *f;
	int device;
	long long bytes;

	memset(p, 0, sizeof(*p));
	f = alive(pid) ? fopen(stub_path(path, "proc", pid), "re") : NULL;
	if (!f)
		return -1;
	if (fscanf(f, "%d %lld %d", &p->state, &p->changed_ms, &p->stuck) != 3) {
		fclose(f);
		return -1;
	}
	while (fscanf(f, "%d %lld", &device, &bytes) == 2)
		if (device >= 0 && device < GPUS)
			p->bytes[device] += bytes;
	fclose(f);
	return 0;
}

static inline void write_proc(int pid, const struct proc *p)
{
	char path[512], fresh[512];
	FILE *f = fopen(stub_path(fresh, "fresh", pid), "we");

	if (!f)
		return;
	fprintf(f, "%d %lld %d\n", p->state, p->changed_ms, p->stuck);
	for (int i = 0; i < GPUS; i++)
		if (p->bytes[i] > 0)
			fprintf(f, "%d %lld\n", i, p->bytes[i]);
	fclose(f);
	rename(fresh, stub_path(path, "proc", pid));
}

/* Whether what *p has counts as used: while it is there, and for a while after. */
static inline int in_use(const struct proc *p, long long lag_ms)
{
	if (p->state != CHECKPOINTED)
		return 1;
	return lag_ms < 0 || now_ms() - p->changed_ms < lag_ms;
}
#endif
