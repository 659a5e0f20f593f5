/* Stands in for libfabric and for a network plugin of NCCL, whose interfaces it has both, with the faults
 * that HOW names. With NEW, its interface is version 11 alone. Declares the beginnings of their structures
 * (fi_getinfo(3), ext-net of NCCL). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { FINE, NO_DEVICE, OTHER, HANGS, CRASHES, LEAVES, EXITS, TCP };

#define PROVIDER (HOW == OTHER ? "tcp" : "cxi")
#define DEVICE (HOW == OTHER ? "eth0" : HOW == TCP ? "lo" : "cxi0")

struct attributes {
	void *object;
	const char *name, *provider;
};

struct info {
	struct info *next;
	uint64_t caps, mode;
	uint32_t format;
	size_t source_length, target_length;
	void *source, *target, *handle, *send, *receive, *end;
	struct attributes *domain, *fabric;
};

static void misbehave(void)
{
	if (HOW == CRASHES)
		abort();
	if (HOW == EXITS)
		exit(0);
	while (HOW == HANGS)
		pause();
	if (HOW == LEAVES && fork() == 0) {
		setsid();
		for (;;)
			pause();
	}
}

uint32_t fi_version(void)
{
	return 1 << 16 | 17;
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const void *hints,
	       struct info **found)
{
	static struct attributes domain = { NULL, DEVICE, NULL }, fabric = { NULL, "f", PROVIDER };
	static struct info info = { .domain = &domain, .fabric = &fabric };

	(void)version, (void)node, (void)service, (void)flags, (void)hints;
	misbehave();
	*found = &info;
	return HOW == NO_DEVICE ? -61 : 0;
}

#if NEW
static int init(void **context, uint64_t communicator, const int *traffic_class, void *log, void *profiler)
{
	(void)profiler;
	misbehave();
	return context != NULL && communicator == 0 && *traffic_class == -1 && log != NULL ? 0 : 3;
}
#else
static int init(void *log, void *profiler)
{
	(void)log, (void)profiler;
	misbehave();
	return 0;
}
#endif

static int devices(int *count)
{
	*count = HOW == NO_DEVICE ? 0 : 2;
	return 0;
}

static int properties(int device, const char **properties)
{
	(void)device;
	properties[0] = DEVICE;
	return 0;
}

struct {
	const char *name;
	__typeof__(init) *init;
	int (*devices)(int *), (*properties)(int, const char **);
}
#if NEW
	ncclNetPlugin_v11
#else
	ncclNetPlugin_v8
#endif
	= { "AWS Libfabric", init, devices, properties };
