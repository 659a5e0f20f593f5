/* Hands a container over to later steps of its job, through its control socket. */
#define _GNU_SOURCE
#include "guard.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/io.h"

enum { BACKLOG = 64 };

int guard_keep_container(struct guard *guard, const int container[], size_t count)
{
	struct guard_job_container *shared = &guard->job_container;

	for (; shared->count < count && shared->lock >= 0; shared->count++) {
		shared->container[shared->count] = fcntl(container[shared->count], F_DUPFD_CLOEXEC, 3);
		if (shared->container[shared->count] < 0)
			return guard_fail(guard, "cannot keep the container for the job");
	}
	return 0;
}

void guard_keep_root(struct guard *guard, const char *path)
{
	if (guard->job_container.lock >= 0)
		guard->job_container.root = strdup(path);
}

/* ---- the control socket ------------------------------------------------------------------------ */

void guard_open_control_socket(struct guard *guard)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct guard_job_container *shared = &guard->job_container;

	if (shared->lock < 0 || shared->count == 0)
		return;
	int length = snprintf(address.sun_path, sizeof address.sun_path, "%s", shared->control_socket);
	CE_AUTO_FD listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listening < 0 || (size_t)length >= sizeof address.sun_path ||
	    bind(listening, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(listening, BACKLOG) < 0)
		return; /* the lock stays: another step reports that it cannot join */
	guard->listening = listening;
	listening = -1;
	(void)flock(shared->lock, LOCK_SH);
}

int guard_is_own(int visitor)
{
	struct ucred who;
	socklen_t size = sizeof who;

	return getsockopt(visitor, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid() &&
	       who.gid == getegid();
}

void guard_answer_control_socket(struct guard *guard)
{
	const struct guard_job_container *shared = &guard->job_container;
	CE_AUTO_FD visitor = accept4(guard->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	CE_AUTO_FD own_ns = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);

	if (visitor < 0 || own_ns < 0 || !guard_is_own(visitor))
		return;
	int all[GUARD_MAX_CONTAINER + 1] = { own_ns };
	memcpy(all + 1, shared->container, shared->count * sizeof *all);
	int rc = ce_send(visitor, "C", 1, all, shared->count + 1);
	for (size_t i = 0; i < guard->fuse_count && rc == 0; i++) {
		const char *image = guard->fuse_image[i];
		const int fds[] = { guard->fuse_device[i], guard->fuse_figures[i] };
		rc = ce_send(visitor, image, strlen(image), fds, fds[1] < 0 ? 1 : 2);
	}
	if (rc == 0 && shared->root != NULL) {
		CE_AUTO_FD root = (int)syscall(SYS_open_tree, AT_FDCWD, shared->root,
					       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
		rc = root < 0 ? 0 : ce_send(visitor, ".", 1, &root, 1);
	}
	/* without this last packet, the visitor knows that something is missing */
	if (rc == 0)
		(void)ce_send(visitor, "", 1, NULL, 0);
}
