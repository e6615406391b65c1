/* What is asked of the driver, and the faults that the test wants. */
#include "libcuda.h"

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

void say_begin(const char *op, int pid)
{
	char row[128];

	snprintf(row, sizeof(row), "begin %s %d %lld %d\n", op, pid, now_ms(), getpid());
	say(row);
}

int say_end(const char *op, int pid, int rc, const char *args)
{
	char row[4096];

	snprintf(row, sizeof(row), "end %s %d %d %lld %s\n", op, pid, rc, now_ms(), args);
	say(row);
	return rc;
}

void hex(char *out, const void *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sprintf(out + 2 * i, "%02x", ((const unsigned char *)data)[i]);
}

/* Take the first row that is due for this call, and count it. */
struct fault take_fault(const char *op, int pid)
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

void wait_ms(long long ms)
{
	if (ms > 0)
		usleep(ms * 1000);
}
