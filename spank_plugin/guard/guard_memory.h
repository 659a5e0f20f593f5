/* The memory limit that applies to this process and its siblings. */
#pragma once

#include <stdint.h>

/* Return the lowest limit, in bytes, of the process's memory cgroups and their ancestors; INT64_MAX if there
 * is none or none can be read. `groups` is the process's list of cgroups (/proc/self/cgroup), `root` is where
 * cgroups are mounted, of either version. Runs as the user. */
int64_t guard_memory_limit(const char *groups, const char *root);

/* Return the effective size of a tmpfs, on the heap; the caller frees it. NULL without memory. If `limit` is
 * lower than the node's memory (`total`), both in bytes, a percentage becomes that percentage of the limit,
 * in bytes: a job that fills its container's file system must get ENOSPC, instead of the kernel killing
 * slurmstepd. Any other size stays as it is. */
char *guard_memory_share(const char *size, int64_t limit, int64_t total);
