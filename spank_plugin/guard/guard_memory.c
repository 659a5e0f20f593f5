#define _GNU_SOURCE
#include "guard_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"

enum { MAX_GROUPS = 64 * 1024, MAX_LIMIT = 64 };

static int64_t read_limit(const char *file)
{
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, file, 0, MAX_LIMIT, NULL);

	if (text == NULL || text[0] < '0' || text[0] > '9') /* version 2: "max" */
		return INT64_MAX;
	errno = 0;
	long long limit = strtoll(text, NULL, 10);
	return errno == 0 ? limit : INT64_MAX;
}

/* Return the lowest limit of the cgroup `group`, below `base`, and of its ancestors. This changes `group`. */
static int64_t lowest(const char *base, char *group, const char *file)
{
	int64_t least = INT64_MAX;

	for (char *slash = group + strlen(group); slash != NULL; slash = strrchr(group, '/')) {
		CE_AUTO_FREE char *path = NULL;
		*slash = '\0';
		if (asprintf(&path, "%s%s/%s", base, group, file) < 0)
			break;
		int64_t limit = read_limit(path);
		least = limit < least ? limit : least;
	}
	return least;
}

/* Return the limit for one line, "NUMBER:CONTROLLERS:PATH"; the line of version 2 names no controllers. */
static int64_t limit_of(char *line, const char *root)
{
	CE_AUTO_FREE char *base = NULL;
	char *controllers = strchr(line, ':');
	char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

	if (group == NULL || strstr(group, "..") != NULL) /* in another cgroup namespace */
		return INT64_MAX;
	*controllers++ = '\0';
	*group++ = '\0';
	if (controllers[0] == '\0')
		return lowest(root, group, "memory.max");
	if (strcmp(controllers, "memory") != 0 || asprintf(&base, "%s/memory", root) < 0)
		return INT64_MAX;
	return lowest(base, group, "memory.limit_in_bytes");
}

int64_t guard_memory_limit(const char *groups, const char *root)
{
	int64_t least = INT64_MAX;
	char *rest = NULL;
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, groups, 0, MAX_GROUPS, NULL);

	if (text == NULL)
		return INT64_MAX;
	for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		int64_t limit = limit_of(line, root);
		least = limit < least ? limit : least;
	}
	return least;
}

char *guard_memory_share(const char *size, int64_t limit, int64_t total)
{
	char *end = NULL, *share = NULL;
	long percent = strtol(size, &end, 10);

	if (limit >= total || strcmp(end, "%") != 0 || percent < 1 || percent > 100)
		return strdup(size);
	/* at least a page: a size of 0 would mean no limit at all */
	int64_t bytes = limit / 100 * percent, page = sysconf(_SC_PAGESIZE);
	return asprintf(&share, "%lld", (long long)(bytes > page ? bytes : page)) >= 0 ? share : NULL;
}
