/* Translates errors of libsquashfs into negative values of errno. */
#pragma once

#include <errno.h>
#include <sqfs/error.h>

static inline int squash_errno(int error)
{
	switch (error) {
	case 0:
		return 0;
	case SQFS_ERROR_ALLOC:
		return -ENOMEM;
	case SQFS_ERROR_NOT_DIR:
		return -ENOTDIR;
	default:
		return -EIO;
	}
}
