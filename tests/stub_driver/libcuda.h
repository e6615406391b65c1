/*
 * What the files of libcuda.so.1 share. Layouts and codes are those of cuda.h 13.0; tests compare them with
 * cuda-bindings.
 */
#ifndef LIBCUDA_H
#define LIBCUDA_H
#include "stub.h"

enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, OPERATING_SYSTEM = 304,
	INVALID_CONTEXT = 201, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, NOT_SUPPORTED = 801
};

struct operation; /* one of custom storage that is not complete */
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
struct fault {
	int due, after, rc, delay_ms, state;
};

/* calls.c */
void say_begin(const char *op, int pid);
int say_end(const char *op, int pid, int rc, const char *args);
void hex(char *out, const void *data, size_t n);
struct fault take_fault(const char *op, int pid);
void wait_ms(long long ms);

/* checkpoint.c */
int fits(int pid, const struct proc *mine);
int step(const char *op, int pid, int from, int to, const char *args, unsigned timeout_ms);

/* devices.c */
void parse_uuid(const char *text, struct uuid *out);
int visible(int *devices);
int move_devices(int pid, const struct restore_args *args);

/* storage.c */
int begin(const char *op, int pid, struct storage ***out);

/* symbols.c */
int version(void);

/* What symbols.c hands out. */
API int cuDeviceGetCount(int *n);
API int cuDeviceGet(int *device, int i);
API int cuDeviceGetUuid_v2(struct uuid *uuid, int device);
API int cuDevicePrimaryCtxRetain(void **context, int device);
API int cuCtxSetCurrent(void *context);
API int cuMemAlloc_v2(uint64_t *address, size_t n);
API int cuMemFree_v2(uint64_t address);
API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n);
API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n);
API int cuCheckpointProcessGetState(int pid, int *state);
API int cuCheckpointProcessGetRestoreThreadId(int pid, int *tid);
API int cuCheckpointProcessLock(int pid, struct lock_args *args);
API int cuCheckpointProcessCheckpoint(int pid, struct checkpoint_args *args);
API int cuCheckpointProcessRestore(int pid, struct restore_args *args);
API int cuCheckpointProcessUnlock(int pid, void *args);
API int cuCheckpointOperationComplete(struct operation *o);
API int cuInit(unsigned flags);
API int cuDriverGetVersion(int *v);
API int cuGetErrorName(int rc, const char **name);
API int cuGetProcAddress_v2(const char *name, void **fn, int wanted, uint64_t flags, int *status);

extern unsigned retained; /* contexts of this process, a bit for each device */
#endif
