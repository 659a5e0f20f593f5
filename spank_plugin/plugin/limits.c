#define _GNU_SOURCE
#include "limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct limit {
	const char *name;
	__rlimit_resource_t resource;
} limits[] = {
	{ "SLURM_RLIMIT_CPU=", RLIMIT_CPU },	     { "SLURM_RLIMIT_FSIZE=", RLIMIT_FSIZE },
	{ "SLURM_RLIMIT_DATA=", RLIMIT_DATA },	     { "SLURM_RLIMIT_STACK=", RLIMIT_STACK },
	{ "SLURM_RLIMIT_CORE=", RLIMIT_CORE },	     { "SLURM_RLIMIT_RSS=", RLIMIT_RSS },
	{ "SLURM_RLIMIT_NPROC=", RLIMIT_NPROC },     { "SLURM_RLIMIT_NOFILE=", RLIMIT_NOFILE },
	{ "SLURM_RLIMIT_MEMLOCK=", RLIMIT_MEMLOCK }, { "SLURM_RLIMIT_AS=", RLIMIT_AS },
};
enum { LIMIT_COUNT = sizeof limits / sizeof limits[0] };

static void set(__rlimit_resource_t resource, const char *value)
{
	struct rlimit limit;
	char *end;

	/* U means that the user, not the site, has asked for the limit to be passed on */
	if (*value == 'U')
		value++;
	errno = 0;
	unsigned long number = strtoul(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0' || getrlimit(resource, &limit) < 0)
		return;
	limit.rlim_cur = number < limit.rlim_max ? number : limit.rlim_max;
	(void)setrlimit(resource, &limit);
}

void ce_limits_apply(char **environment)
{
	for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
		for (int i = 0; i < LIMIT_COUNT; i++) {
			size_t length = strlen(limits[i].name);
			if (strncmp(*entry, limits[i].name, length) == 0)
				set(limits[i].resource, *entry + length);
		}
	}
}
