/*
 * A container that lives with its job is kept by the guards of all steps in it. The first guard makes it;
 * each later one enters the same user namespace and serves the images through the same FUSE connections, so
 * that any one of them suffices when the others have ended with their steps. What they share is in a
 * directory of the user's: a lock, held shared by every guard whose container is ready, and a control socket
 * for each of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "guard.h"
#include "guard_ops.h"
#include "guard_walk.h"

int guard_op_keep(struct guard *guard, char **args)
{
	guard->job_container.lock = ce_descriptor(args[0]);
	guard->job_container.control_socket = strdup(args[1]);
	if (guard->job_container.lock < 0 || guard->job_container.control_socket == NULL)
		return guard_fail(guard, "cannot keep the container for the job");
	return 0;
}

/* ---- a guard that joins ------------------------------------------------------------------------ */

int guard_op_fuse_again(struct guard *guard, char **args)
{
	CE_AUTO_FD theirs = ce_descriptor(args[2]);
	CE_AUTO_FD device = theirs < 0 ? -1 : guard_clone_device(theirs);

	if (device < 0 || guard->fuse_count == GUARD_MAX_FUSE)
		return guard_fail(guard, "cannot serve the image of the running container");
	return guard_start_server(guard, args[0], args[1], device, "again", -1,
				  args[3] != NULL ? ce_descriptor(args[3]) : -1);
}

int guard_op_root_again(struct guard *guard, char **args)
{
	CE_AUTO_FD root = ce_descriptor(args[0]);

	if (root < 0 || mkdir(args[1], 0755) < 0 ||
	    syscall(SYS_move_mount, root, "", AT_FDCWD, args[1], MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return guard_fail(guard, "cannot mount the running container's files");
	guard_keep_root(guard, args[1]);
	return 0;
}

/* Make the directory of a mount and its parents, in the current root. */
static int make_directories(const char *path)
{
	if (ce_make_parents(path, 0755) < 0)
		return -1;
	return mkdir(path, 0755) < 0 && errno != EEXIST && access(path, F_OK) < 0 ? -1 : 0;
}

/* Mount the directory; called in a child, because the guard itself must not enter the container. Return the
 * exit code of the child: 0, or an errno. */
static int bind_inside(int mount_ns, const char *path)
{
	CE_AUTO_FD tree = (int)syscall(SYS_open_tree, AT_FDCWD, path,
				       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	if (tree < 0 || setns(mount_ns, CLONE_NEWNS) < 0 || make_directories(path) < 0 ||
	    syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return errno;
	return 0;
}

int guard_op_bind_inside(struct guard *guard, char **args)
{
	int mount_ns = (int)strtol(args[0], NULL, 10), status = 0;

	if (!guard->job_container.has_mounts && unshare(CLONE_NEWNS) < 0)
		return guard_fail(guard, "cannot make a mount namespace");
	guard->job_container.has_mounts = 1;
	pid_t pid = fork();
	if (pid == 0)
		_exit(bind_inside(mount_ns, args[1]));
	if (pid < 0 || guard_wait(guard, pid, &status) < 0)
		return guard_fail(guard, "cannot start a process");
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
	return errno == 0 ? 0 : guard_fail(guard, "cannot mount '%s' in the running container", args[1]);
}

/* The result of a child in the container: errno, and the directory that it is about, "" for none. */
struct inside {
	int error;
	char path[PATH_MAX];
	struct guard_link link;
};

/* Make in the container the directories that this step's tasks expect, as in a new one, and check that there
 * is the working directory `args[0]`. */
static void look_inside(int mount_ns, char **args, struct inside *found)
{
	CE_AUTO_FD root = setns(mount_ns, CLONE_NEWNS) < 0 ? -1 : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	found->error = root < 0 ? errno : 0;
	for (char **path = args + 1; root >= 0 && *path != NULL; path++) {
		CE_AUTO_FD made = guard_make_here(root, *path, &found->link);
		/* what is mounted there, or cannot be written, is as the first step has left it */
		if (made >= 0 || errno == EXDEV || errno == EROFS)
			continue;
		found->error = errno;
		snprintf(found->path, sizeof found->path, "%s", *path);
		return;
	}
	CE_AUTO_FD dir = root < 0 ? -1 : guard_open_in_root(root, args[0], O_PATH | O_DIRECTORY);
	/* the tasks find out whatever else may be wrong with it */
	if (root >= 0 && dir < 0 && (errno == ENOENT || errno == ENOTDIR))
		found->error = errno;
}

int guard_op_root_inside(struct guard *guard, char **args)
{
	int mount_ns = (int)strtol(args[0], NULL, 10), status = 0;
	struct inside *found =
		mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = found != MAP_FAILED ? fork() : -1;

	if (pid == 0) {
		look_inside(mount_ns, args + 1, found);
		_exit(0);
	}
	if (pid < 0 || guard_wait(guard, pid, &status) < 0)
		return guard_fail(guard, "cannot start a process");
	if (status != 0)
		return guard_fail_ended(guard, "the process that looks into the container", status);
	errno = found->error;
	if (found->path[0] != '\0')
		return guard_fail_at(guard, "cannot make the directory", found->path, &found->link);
	if (errno == 0)
		return 0;
	guard->stage = "workdir";
	return guard_fail(guard, "workdir '%s'", args[1]);
}

int guard_op_joined(struct guard *guard, char **args)
{
	int container[GUARD_MAX_CONTAINER];
	size_t count = 0;

	for (; args[count] != NULL; count++) {
		int fd = count < GUARD_MAX_CONTAINER ? ce_descriptor(args[count]) : -1;
		if (fd < 0)
			return guard_fail(guard, "the running container's descriptors are missing");
		container[count] = fd;
	}
	return guard_report_container(guard, container, count);
}
