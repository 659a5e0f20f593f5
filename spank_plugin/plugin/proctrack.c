#define _GNU_SOURCE
#include "proctrack.h"

#include <link.h>
#include <string.h>
#include <sys/prctl.h>

/* Return non-zero for the cgroup tracking plugin. Slurm loads only the one tracking
 * plugin that slurm.conf names. */
static int is_cgroup_tracking(struct dl_phdr_info *info, size_t size, void *context)
{
	(void)size, (void)context;
	return info->dlpi_name != NULL && strstr(info->dlpi_name, "/proctrack_cgroup.so") != NULL;
}

void ce_proctrack_keep_orphans(void)
{
	if (!dl_iterate_phdr(is_cgroup_tracking, NULL))
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}
