/* Stands in for the CXI provider of libfabric on machines without Slingshot: a provider of that name, in
 * a library of its own, that fi_info lists and that cannot open anything. Declares the beginnings of
 * libfabric's structures, which its interface keeps (fi_getinfo(3), fi_provider(7)). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NO_MEMORY (-12)
#define NOT_IMPLEMENTED (-38)

struct attributes {
	void *object;
	char *name;
};

struct info {
	struct info *next;
	uint64_t caps, mode;
	uint32_t addr_format;
	size_t src_addrlen, dest_addrlen;
	void *src_addr, *dest_addr, *handle, *tx, *rx, *ep;
	struct attributes *domain, *fabric;
};

struct info *fi_dupinfo(const struct info *info);
uint32_t fi_version(void);

static int getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		   const struct info *hints, struct info **found)
{
	struct info *info = fi_dupinfo(NULL);

	(void)version, (void)node, (void)service, (void)flags, (void)hints;
	if (info == NULL)
		return NO_MEMORY;
	info->fabric->name = strdup("cxi");
	info->domain->name = strdup("cxi0");
	*found = info;
	return 0;
}

static int fabric(void *attributes, void **made, void *context)
{
	(void)attributes, (void)made, (void)context;
	return NOT_IMPLEMENTED;
}

static void cleanup(void)
{
}

static struct {
	uint32_t version, interface;
	void *context[4];
	const char *name;
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct info *,
		       struct info **);
	int (*fabric)(void *, void **, void *);
	void (*cleanup)(void);
} provider = { 1 << 16, 0, { NULL }, "cxi", getinfo, fabric, cleanup };

void *fi_prov_ini(void);

void *fi_prov_ini(void)
{
	provider.interface = fi_version();
	return &provider;
}
