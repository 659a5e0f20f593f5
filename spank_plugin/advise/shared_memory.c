#define _GNU_SOURCE
#include "advise.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/job_places.h"

enum { MOST_OPEN = 16 };

/* An entry of the directory: the largest so far, and the one at which nftw is. */
static struct entry {
	char name[128];
	unsigned long long bytes;
	int is_own;
} largest, current;

static int add(const char *path, const struct stat *found, int kind, struct FTW *place)
{
	if (place->level == 1) {
		snprintf(current.name, sizeof current.name, "%s", path + place->base);
		current.bytes = 0;
		current.is_own = kind != FTW_NS && found->st_uid == geteuid();
	}
	if (place->level >= 1 && kind != FTW_NS)
		current.bytes += (unsigned long long)found->st_blocks * 512;
	if (current.bytes > largest.bytes)
		largest = current;
	return 0;
}

int ce_find_full_shared_memory(const struct ce_variables *variables, char line[CE_LIBRARY_LINE])
{
	unsigned long long left, all;
	char most[sizeof largest.name + 64] = "";

	if (!ce_lacks_shared_memory(variables, &left, &all))
		return 0;
	(void)nftw(CE_SHARED_MEMORY, add, MOST_OPEN, FTW_PHYS | FTW_MOUNT);
	if (all >= CE_SHARED_MEMORY_NEEDED && largest.bytes > 0)
		snprintf(most, sizeof most, "; the most, %llu MiB, is in '%s', %s", largest.bytes >> 20,
			 largest.name, largest.is_own ? "of yours" : "of another user");
	snprintf(line, CE_LIBRARY_LINE,
		 CE_SHARED_MEMORY " has %llu MiB left of %llu: NCCL, MPI and a DataLoader's workers need "
		 "more, and fail with 'No space left on device' or 'Bus error'%s (mounts = "
		 "[\"tmpfs:" CE_SHARED_MEMORY ":size=16g\"] gives the container its own)",
		 left, all, most);
	return 1;
}
