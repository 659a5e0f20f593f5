/*
 * kernel: runs a kernel on the first GPU through the driver's own library, without NVIDIA's toolkit, and
 * prints how many devices there are, the name of the first and whether the sum is right. Exit code: 0 right,
 * 1 not.
 */
#include <dlfcn.h>
#include <stdio.h>

enum { COUNT = 1000, BLOCK = 256 };

/* y[i] = 3 * x[i] + i */
static const char ptx[] =
	".version 6.0\n.target sm_60\n.address_size 64\n"
	".visible .entry fill(.param .u64 y, .param .u64 x, .param .u32 n)\n{\n"
	".reg .pred %p;\n.reg .b32 %r<8>;\n.reg .b64 %d<6>;\n"
	"ld.param.u64 %d1, [y];\nld.param.u64 %d2, [x];\nld.param.u32 %r1, [n];\n"
	"mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
	"mad.lo.s32 %r5, %r2, %r3, %r4;\nsetp.ge.u32 %p, %r5, %r1;\n@%p bra done;\n"
	"cvta.to.global.u64 %d1, %d1;\ncvta.to.global.u64 %d2, %d2;\n"
	"mul.wide.u32 %d3, %r5, 4;\nadd.s64 %d4, %d2, %d3;\nadd.s64 %d5, %d1, %d3;\n"
	"ld.global.u32 %r6, [%d4];\nmad.lo.s32 %r7, %r6, 3, %r5;\nst.global.u32 [%d5], %r7;\n"
	"done:\nret;\n}\n";

static void *library;

/* Each function of the driver has a type of its own; only those of its name and result are checked. */
#define CALL(name, types, ...)                                                                     \
	do {                                                                                       \
		int (*function) types = (int(*) types)dlsym(library, #name);                       \
		int result = function != NULL ? function(__VA_ARGS__) : -1;                        \
		if (result != 0) {                                                                 \
			printf("%s: error %d\n", #name, result);                                   \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

typedef unsigned long long address;

int main(void)
{
	static unsigned x[COUNT], y[COUNT];
	unsigned n = COUNT, wrong = 0;
	int count = 0, device = 0, version = 0;
	void *context, *module, *kernel;
	address on_x, on_y;
	char name[128] = "";

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (library == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	CALL(cuInit, (unsigned), 0);
	CALL(cuDriverGetVersion, (int *), &version);
	CALL(cuDeviceGetCount, (int *), &count);
	CALL(cuDeviceGet, (int *, int), &device, 0);
	CALL(cuDeviceGetName, (char *, int, int), name, sizeof name, device);
	CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
	CALL(cuCtxSetCurrent, (void *), context);
	CALL(cuModuleLoadData, (void **, const void *), &module, ptx);
	CALL(cuModuleGetFunction, (void **, void *, const char *), &kernel, module, "fill");
	CALL(cuMemAlloc_v2, (address *, size_t), &on_x, sizeof x);
	CALL(cuMemAlloc_v2, (address *, size_t), &on_y, sizeof y);
	for (unsigned i = 0; i < COUNT; i++)
		x[i] = 7 * i + 1;
	CALL(cuMemcpyHtoD_v2, (address, const void *, size_t), on_x, x, sizeof x);
	void *arguments[] = { &on_y, &on_x, &n };
	CALL(cuLaunchKernel,
	     (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
	      void **, void **),
	     kernel, (COUNT + BLOCK - 1) / BLOCK, 1, 1, BLOCK, 1, 1, 0, NULL, arguments, NULL);
	CALL(cuCtxSynchronize, (void));
	CALL(cuMemcpyDtoH_v2, (void *, address, size_t), y, on_y, sizeof y);
	for (unsigned i = 0; i < COUNT; i++)
		wrong += y[i] != 3 * x[i] + i;
	printf("%d: %s: CUDA %d.%d: %u of %d wrong\n", count, name, version / 1000,
	       version % 1000 / 10, wrong, COUNT);
	return wrong != 0;
}
