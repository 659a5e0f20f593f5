#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io.h"
#include "guard_ops.h"

int guard_op_session(struct guard *guard, char **args)
{
	CE_AUTO_FREE char *options = NULL, *host_proc = NULL;
	int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	CE_AUTO_FREE char *size = guard_memory_share(
		args[0], guard_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup"), total);

	if (size == NULL || asprintf(&options, "mode=0755,size=%s", size) < 0 ||
	    asprintf(&host_proc, "%s/proc", args[1]) < 0)
		return guard_fail(guard, "out of memory");
	/* slave, not private: later mounts of the host (autofs, a new file system) still appear */
	guard->stage = "mount-namespace";
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return guard_fail(guard, "cannot make a mount namespace");
	guard->stage = "session";
	if (mount("tmpfs", args[1], "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
		return guard_fail(guard, "cannot mount a tmpfs on '%s'", args[1]);
	if (mkdir(host_proc, 0555) < 0 ||
	    mount("/proc", host_proc, NULL, MS_BIND | MS_REC, NULL) < 0)
		return guard_fail(guard, "cannot keep the host's /proc");
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return guard_fail(guard, "cannot mount /proc in the user namespace");
	/* so that Podman can call the directory /proc/1/cwd, a short name */
	return chdir(args[1]) == 0 ? 0 : guard_fail(guard, "cannot change to '%s'", args[1]);
}

int guard_op_dir(struct guard *guard, char **args)
{
	return mkdir(args[0], 0755) == 0 ? 0 : guard_fail(guard, "cannot make '%s'", args[0]);
}

int guard_op_file(struct guard *guard, char **args)
{
	CE_AUTO_FD fd = open(args[0], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || ce_write_all(fd, args[1], strlen(args[1])) < 0)
		return guard_fail(guard, "cannot write '%s'", args[0]);
	return 0;
}

int guard_op_environment(struct guard *guard, char **args)
{
	return setenv(args[0], args[1], 1) == 0 ? 0 : guard_fail(guard, "out of memory");
}

/* ---- bind mounts with their own flags ---------------------------------------------------------- */

/*
 * Bind mounts with their own flags. crun (1.8) applies nosuid, nodev and noexec to a bind mount only if it is
 * also read-only, and read-only to the source alone, not to what is mounted below it. So the guard binds
 * such a source below the session's directory, with the flags, and the runtime binds from there: a bind
 * mount keeps the flags of its source.
 */

static const struct {
	const char *name;
	uint64_t attribute;
} attributes[] = {
	{ "ro", MOUNT_ATTR_RDONLY },
	{ "nosuid", MOUNT_ATTR_NOSUID },
	{ "nodev", MOUNT_ATTR_NODEV },
	{ "noexec", MOUNT_ATTR_NOEXEC },
};

/* Return the mount attributes among the flags; the others (propagation, rw) are left to the runtime. */
static uint64_t attributes_of(char **flags)
{
	uint64_t set = 0;

	for (; *flags != NULL; flags++) {
		for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
			if (strcmp(attributes[i].name, *flags) == 0)
				set |= attributes[i].attribute;
		}
	}
	return set;
}

static int make_place(const char *source, const char *target)
{
	struct stat st;

	if (stat(source, &st) < 0)
		return -1;
	if (S_ISDIR(st.st_mode))
		return mkdir(target, 0755);
	CE_AUTO_FD fd = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? -1 : 0;
}

int guard_op_bind(struct guard *guard, char **args)
{
	const char *source = args[0], *target = args[1];
	/* only set: what the host has locked stays locked */
	struct mount_attr change = { .attr_set = attributes_of(args + 2) };
	/* but the runtime makes the places of other mounts in the source itself, before that is read-only */
	struct mount_attr top = { .attr_clr = change.attr_set & MOUNT_ATTR_RDONLY };

	if (make_place(source, target) < 0 ||
	    mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0 ||
	    syscall(SYS_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &change, sizeof change) < 0 ||
	    (syscall(SYS_mount_setattr, AT_FDCWD, target, 0, &top, sizeof top) < 0 && errno != EPERM))
		return guard_fail(guard, "cannot mount '%s' with its flags", source);
	return 0;
}
