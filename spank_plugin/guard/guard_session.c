#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "guard_memory.h"
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
