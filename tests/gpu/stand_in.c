/*
 * stand_in.c: stands in, on machines without a GPU, for libcuda.so.1, with the few functions that kernel.c
 * calls, and with -DPROGRAM for nvidia-smi. Its output says that it is no GPU. As with a real driver, there
 * are as many devices as device files can be opened.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "a stand-in, no GPU"
#define EXPORT __attribute__((visibility("default")))
enum { MOST = 16, NO_DEVICE = 100 };

typedef unsigned long long address;

static int devices(void)
{
	int count = 0;

	for (int i = 0; i < MOST; i++) {
		char path[32];
		snprintf(path, sizeof path, "/dev/nvidia%d", i);
		int fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0) {
			close(fd);
			count++;
		}
	}
	return count;
}

#ifdef PROGRAM
int main(void)
{
	int count = devices();

	for (int i = 0; i < count; i++)
		printf("GPU %d: %s (UUID: GPU-%d)\n", i, NAME, i);
	return count == 0;
}
#else
EXPORT int cuInit(unsigned flags)
{
	return (int)flags + (devices() != 0 ? 0 : NO_DEVICE);
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = 0;
	return 0;
}

EXPORT int cuDeviceGetCount(int *count)
{
	*count = devices();
	return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

EXPORT int cuDeviceGetName(char *name, int length, int device)
{
	snprintf(name, (size_t)length, "%s", NAME);
	return device;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = NULL;
	return device;
}

EXPORT int cuCtxSetCurrent(const void *context)
{
	return context != NULL;
}

EXPORT int cuModuleLoadData(void **module, const char *text)
{
	*module = NULL;
	return strstr(text, ".entry fill(") == NULL;
}

EXPORT int cuModuleGetFunction(void **function, const void *module, const char *name)
{
	*function = NULL;
	return module != NULL || strcmp(name, "fill") != 0;
}

EXPORT int cuMemAlloc_v2(address *place, size_t size)
{
	*place = (address)(size_t)calloc(1, size);
	return *place == 0;
}

EXPORT int cuMemcpyHtoD_v2(address to, const void *from, size_t size)
{
	memcpy((void *)(size_t)to, from, size);
	return 0;
}

EXPORT int cuMemcpyDtoH_v2(void *to, address from, size_t size)
{
	memcpy(to, (const void *)(size_t)from, size);
	return 0;
}

EXPORT int cuLaunchKernel(const void *function, unsigned grid, unsigned grid_y, unsigned grid_z,
			  unsigned block, unsigned block_y, unsigned block_z, unsigned shared,
			  const void *stream, void **arguments, void **extra)
{
	unsigned *y = *(unsigned **)arguments[0];
	const unsigned *x = *(unsigned **)arguments[1];
	unsigned n = *(unsigned *)arguments[2];

	for (unsigned i = 0; i < n && i < grid * block; i++)
		y[i] = 3 * x[i] + i;
	return function != NULL || grid_y * grid_z * block_y * block_z != 1 || shared != 0 ||
	       stream != NULL || extra != NULL;
}

EXPORT int cuCtxSynchronize(void)
{
	return 0;
}
#endif
