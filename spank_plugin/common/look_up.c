#define _GNU_SOURCE
#include "look_up.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

const char ce_usual_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* Return 0 if the file can be executed, EACCES if it exists but the user may not execute it, else the errno
 * of stat. */
static int try_command(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno;
	if (S_ISDIR(st.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
		return EACCES;
	return 0;
}

int ce_is_absent(int reason)
{
	return reason == ENOENT || reason == ENOTDIR || reason == ELOOP;
}

int ce_search_path(const char *path, const char *command, int (*try_file)(const char *), char **found,
		   int *reason)
{
	*reason = ENOENT;
	for (const char *dir = path; dir != NULL;) {
		const char *colon = strchr(dir, ':');
		size_t length = colon != NULL ? (size_t)(colon - dir) : strlen(dir);
		CE_AUTO_FREE char *candidate = NULL;

		/* an empty element of PATH is the current directory */
		if (asprintf(&candidate, "%.*s%s%s", (int)length, dir, length > 0 ? "/" : "./",
			     command) < 0) {
			candidate = NULL;
			return -1;
		}
		int rc = try_file(candidate);
		if (rc == 0) {
			*found = candidate;
			candidate = NULL;
			return 0;
		}
		if (!ce_is_absent(rc))
			*reason = rc;
		dir = colon != NULL ? colon + 1 : NULL;
	}
	return 1;
}

int ce_look_up(const char *path, const char *command, char **found, int *reason)
{
	*found = NULL;
	*reason = ENOENT;
	if (command[0] == '\0')
		return 1;
	if (strchr(command, '/') == NULL)
		return ce_search_path(path != NULL ? path : ce_usual_path, command, try_command, found,
				      reason);
	*reason = try_command(command);
	if (*reason != 0)
		return 1;
	*found = strdup(command);
	return *found != NULL ? 0 : -1;
}
