#define _GNU_SOURCE
#include "memo_directory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "common/io.h"
#include "common/memo_file.h"

enum { OTHERS = 077 };

int ce_own_starts(const char *temporary, uid_t uid)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/ce-memos-%u", temporary, (unsigned)uid);

	if (length < 0 || (size_t)length >= sizeof path)
		return -1;
	CE_AUTO_FD memos = ce_open_own(AT_FDCWD, path, uid, OTHERS);
	return memos >= 0 ? ce_open_own(memos, "starts", uid, OTHERS) : -1;
}
