#define _GNU_SOURCE
#include "own.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/io.h"

#define STARTS "/.cache/container-engine/starts"

enum { OTHERS = 077, AT_UID = 2, AT_HOME = 5 };

/* Return field `number` of a line, from 0; its length in *length. NULL if the line has no such field. */
static const char *field_of(const char *line, size_t size, int number, size_t *length)
{
	const char *end = line + size;

	for (; number > 0; number--) {
		const char *colon = memchr(line, ':', (size_t)(end - line));
		if (colon == NULL)
			return NULL;
		line = colon + 1;
	}
	const char *colon = memchr(line, ':', (size_t)(end - line));
	*length = (size_t)((colon != NULL ? colon : end) - line);
	return line;
}

char *ce_own_home(const char *passwd, uid_t uid)
{
	char wanted[16];
	size_t digits = (size_t)snprintf(wanted, sizeof wanted, "%u", (unsigned)uid);

	for (const char *line = passwd; *line != '\0'; line += *line == '\n') {
		size_t size = strcspn(line, "\n"), length = 0;
		const char *number = field_of(line, size, AT_UID, &length);
		if (number != NULL && length == digits && memcmp(number, wanted, digits) == 0) {
			const char *home = field_of(line, size, AT_HOME, &length);
			return home != NULL && *home == '/' ? strndup(home, length) : NULL;
		}
		line += size;
	}
	return NULL;
}

int ce_open_own(int at, const char *path, uid_t uid, mode_t others)
{
	CE_AUTO_FD fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat found;

	if (fd < 0 || fstat(fd, &found) < 0 || found.st_uid != uid || (found.st_mode & others) != 0)
		return -1;
	return ce_release_fd(&fd);
}

int ce_own_starts(const char *home, const char *host, uid_t uid)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s" STARTS, home);

	if (length < 0 || (size_t)length >= sizeof path || *host == '\0' || *host == '.' || strchr(host, '/') != NULL)
		return -1;
	CE_AUTO_FD starts = ce_open_own(AT_FDCWD, path, uid, OTHERS);
	return starts >= 0 ? ce_open_own(starts, host, uid, OTHERS) : -1;
}
