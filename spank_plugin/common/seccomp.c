#define _GNU_SOURCE
#include "seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "generated/fakeroot_code.h"
#include "generated/help.h"
#include "io.h"

/* ---- root in a container ----------------------------------------------------------------------- */

#ifdef CE_FAKEROOT_CODE

int ce_fakeroot(void)
{
	struct sock_filter code[] = { CE_FAKEROOT_CODE };
	const struct sock_fprog program = { .len = sizeof code / sizeof code[0], .filter = code };

	/* Kernels before 5.16 do not let a process with a filter speculate, which slows it down; this filter
	 * is not meant to confine anything. */
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}

#else

int ce_fakeroot(void)
{
	return 0;
}

#endif

/* ---- the site's profile ------------------------------------------------------------------------ */

int ce_profile_open(const char *path, struct ce_error *err)
{
	struct stat st;
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0)
		return ce_fail_below(err, CE_HELP_PLUGIN_CONFIGURATION, "the site's seccomp profile %s: %s",
				     path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return ce_fail_below(err, CE_HELP_PLUGIN_CONFIGURATION,
				     "the site's seccomp profile %s: must be owned by root and writable by "
				     "nobody else",
				     path);
	return ce_release_fd(&fd);
}

#define PLACE "/etc/container-engine/tasks.bpf"

int ce_profile_of_site(const char *prefix, int *fd, struct ce_error *err)
{
	const char *const above[] = { prefix, "" };
	char path[PATH_MAX];

	*fd = -1;
	for (size_t i = 0; i < sizeof above / sizeof above[0]; i++) {
		int length = snprintf(path, sizeof path, "%s" PLACE, above[i]);
		if (length < 0 || (size_t)length >= sizeof path)
			return ce_fail(err, "%s: the path is too long", prefix);
		if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
			continue;
		*fd = ce_profile_open(path, err);
		return *fd >= 0 ? 0 : -1;
	}
	return 0;
}

int ce_profile_apply(int fd, struct ce_error *err)
{
	struct sock_filter code[BPF_MAXINSNS + 1];
	const size_t step = sizeof code[0];

	if (fd < 0)
		return 0;
	ssize_t size = pread(fd, code, sizeof code, 0);
	if (size <= 0 || (size_t)size % step != 0 || (size_t)size / step > BPF_MAXINSNS)
		return ce_fail_below(err, CE_HELP_PLUGIN_CONFIGURATION,
				     "the site's seccomp profile is not a filter of 1 to %d instructions",
				     BPF_MAXINSNS);
	const struct sock_fprog program = { .len = (unsigned short)((size_t)size / step), .filter = code };
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
		return ce_fail_below(err, CE_HELP_PLUGIN_CONFIGURATION, "the site's seccomp profile: %s",
				     strerror(errno));
	return 0;
}
