#define _GNU_SOURCE
#include "script_note.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/io.h"

enum { ENTRY_SIZE = 64 * 1024 };

void ce_note_path(uid_t uid, uint32_t job, char path[PATH_MAX])
{
	CE_AUTO_FREE char *buffer = malloc(ENTRY_SIZE);
	struct passwd entry, *found = NULL;

	path[0] = '\0';
	/* not $HOME, which the script may change */
	if (buffer == NULL || getpwuid_r(uid, &entry, buffer, ENTRY_SIZE, &found) != 0 || found == NULL ||
	    found->pw_dir == NULL || found->pw_dir[0] != '/')
		return;
	int n = snprintf(path, PATH_MAX, "%s/.local/state/container-engine/unused/%u", found->pw_dir,
			 (unsigned)job);
	if (n < 0 || n >= PATH_MAX)
		path[0] = '\0';
}

void ce_note_make(const char *path)
{
	(void)ce_make_parents(path, 0700);
	CE_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int ce_note_take(const char *path)
{
	return path[0] != '\0' && unlink(path) == 0;
}
