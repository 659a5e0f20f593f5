/* How much memory the kernel lets this process and those beside it have. */
#ifndef CE_GUARD_MEMORY_H
#define CE_GUARD_MEMORY_H

#include <stdint.h>

/* The lowest limit, in bytes, of the memory cgroups that the process is in and of those above them; INT64_MAX
 * where there is none or none can be read. `groups` is the process's list of cgroups (/proc/self/cgroup),
 * `root` where cgroups are mounted, of either version. Runs as the user. */
int64_t guard_memory_limit(const char *groups, const char *root);

/* What a size of a tmpfs is to mean: on the heap, NULL without memory. A percentage of the node's memory
 * (`total`, in bytes) becomes bytes where the limit is lower: a job that fills its container's file system is
 * to hear ENOSPC, not to lose slurmstepd to the kernel. Any other size is as it was. */
char *guard_memory_share(const char *size, int64_t limit, int64_t total);

#endif
