#define _GNU_SOURCE
#include "slurmd_spool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/io.h"

/* its number is low, because slurmstepd opens its socket before anything else of a step */
enum { LAST_DESCRIPTOR = 255 };

/* Return the end of NODE in NODE_JOB.STEP, or NODE_JOB.STEP.COMPONENT; NULL in another name. */
static char *end_of_node(char *name, const char *step)
{
	char *end = strstr(name, step);

	return end != NULL && (end[strlen(step)] == '\0' || end[strlen(step)] == '.') ? end : NULL;
}

/* Return whether fd is the step's socket; if so, cut its path in *address into the directory and the node. */
static int is_steps_socket(int fd, const char *step, struct sockaddr_un *address)
{
	socklen_t size = sizeof *address - 1;

	*address = (struct sockaddr_un){ .sun_family = AF_UNSPEC };
	if (getsockname(fd, (struct sockaddr *)address, &size) < 0 ||
	    address->sun_family != AF_UNIX || address->sun_path[0] != '/')
		return 0;
	char *slash = strrchr(address->sun_path, '/'), *end = end_of_node(slash + 1, step);
	if (slash == address->sun_path || end == NULL)
		return 0;
	*slash = *end = '\0';
	return 1;
}

/* Slurm's plugin interface has no item for either, and asking slurmctld would cost a message from every node.
 * But slurmstepd listens there for queries about the step, so the address of its own socket gives both. */
char *ce_spool_dir(uint32_t job, uint32_t step, char **node)
{
	struct sockaddr_un address;
	char wanted[32];

	snprintf(wanted, sizeof wanted, "_%u.%u", (unsigned)job, (unsigned)step);
	for (int fd = 3; fd <= LAST_DESCRIPTOR; fd++) {
		if (is_steps_socket(fd, wanted, &address)) {
			*node = strdup(address.sun_path + strlen(address.sun_path) + 1);
			return strdup(address.sun_path);
		}
	}
	return *node = NULL;
}

char *ce_spool_pmix(uint32_t job, uint32_t step)
{
	struct stat st;
	char *path = NULL;
	CE_AUTO_FREE char *node = NULL, *spool = ce_spool_dir(job, step, &node);

	if (spool == NULL || asprintf(&path, "%s/pmix.%u.%u", spool, (unsigned)job, (unsigned)step) < 0)
		return NULL;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return path;
	free(path);
	return NULL;
}
