#define _GNU_SOURCE
#include "step_shared.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/io.h"

struct ce_shared *ce_shared_make(void)
{
	void *memory = mmap(NULL, sizeof(struct ce_shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory != MAP_FAILED ? memory : NULL;
}

void ce_shared_join(struct ce_shared *shared)
{
	int64_t none = 0, when = ce_now_ns();

	atomic_compare_exchange_strong(&shared->first_join, &none, when);
	/* of two tasks that join at the same moment, either may be recorded as the last */
	atomic_store(&shared->last_join, when);
	atomic_fetch_add(&shared->joined, 1);
}

void ce_shared_name(struct ce_shared *shared, const char *name)
{
	/* the last byte stays 0 */
	if (shared != NULL && name != NULL)
		strncpy(shared->node, name, CE_NODE_SIZE - 1);
}

void ce_shared_write(const struct ce_shared *shared, int trace)
{
	char line[192];
	int n = snprintf(line, sizeof line,
			 "{\"end\":%lld,\"first_join\":%lld,\"last_join\":%lld,\"joined\":%lld}\n",
			 (long long)ce_now_ns(), (long long)shared->first_join, (long long)shared->last_join,
			 (long long)shared->joined);

	/* one write, so that a line is either complete or absent; it is lost if the disk is full */
	if (write(trace, line, (size_t)n) < 0)
		return;
}
