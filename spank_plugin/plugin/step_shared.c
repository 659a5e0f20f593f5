#define _GNU_SOURCE
#include "step_shared.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int64_t ce_moments_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

struct ce_moments *ce_moments_make(void)
{
	void *memory = mmap(NULL, sizeof(struct ce_moments), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory != MAP_FAILED ? memory : NULL;
}

void ce_moments_join(struct ce_moments *moments)
{
	int64_t none = 0, when = ce_moments_now();

	if (moments == NULL)
		return;
	atomic_compare_exchange_strong(&moments->first_join, &none, when);
	/* of two at the same moment either may be the last */
	atomic_store(&moments->last_join, when);
	atomic_fetch_add(&moments->joined, 1);
}

void ce_moments_name(struct ce_moments *moments, const char *name)
{
	/* the last byte stays 0 */
	if (moments != NULL && name != NULL)
		strncpy(moments->node, name, CE_NODE_SIZE - 1);
}

void ce_moments_write(const struct ce_moments *moments, int trace)
{
	char line[192];

	if (trace < 0)
		return;
	int n = snprintf(line, sizeof line,
			 "{\"end\":%lld,\"first_join\":%lld,\"last_join\":%lld,\"joined\":%lld}\n",
			 (long long)ce_moments_now(), moments ? (long long)moments->first_join : 0,
			 moments ? (long long)moments->last_join : 0,
			 moments ? (long long)moments->joined : 0);
	/* one write, so that a line is whole or absent; a full disk loses it */
	if (write(trace, line, (size_t)n) < 0)
		return;
}
