/* How a program finds what this version of the driver has. */
#include "libcuda.h"

int version(void)
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
