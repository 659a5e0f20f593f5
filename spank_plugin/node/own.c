#define _GNU_SOURCE
#include "own.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/io.h"

enum { OTHERS = 077 };

int ce_open_own(int at, const char *path, uid_t uid, mode_t others)
{
	CE_AUTO_FD fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat found;

	if (fd < 0 || fstat(fd, &found) < 0 || found.st_uid != uid || (found.st_mode & others) != 0)
		return -1;
	return ce_release_fd(&fd);
}

int ce_own_starts(const char *temporary, uid_t uid)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/ce-memos-%u", temporary, (unsigned)uid);

	if (length < 0 || (size_t)length >= sizeof path)
		return -1;
	CE_AUTO_FD memos = ce_open_own(AT_FDCWD, path, uid, OTHERS);
	return memos >= 0 ? ce_open_own(memos, "starts", uid, OTHERS) : -1;
}
