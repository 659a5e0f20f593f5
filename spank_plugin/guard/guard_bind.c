/*
 * Bind mounts with their own flags. crun (1.8) applies nosuid, nodev and noexec to a bind mount only if it is
 * also read-only. So the guard binds such a source below the session's directory, with the flags, and the
 * runtime binds from there: a bind mount keeps the flags of its source.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io.h"
#include "guard_ops.h"

static const struct {
	const char *name;
	uint64_t attribute;
} attributes[] = {
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
	/* only set, never cleared: what the host has locked stays locked */
	struct mount_attr change = { .attr_set = attributes_of(args + 2) };

	if (make_place(source, target) < 0 ||
	    mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0 ||
	    syscall(SYS_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &change, sizeof change) < 0)
		return guard_fail(guard, "cannot mount '%s' with its flags", source);
	return 0;
}
