/*
 * A step asks the job's holder of images at an abstract socket, which nothing outlives. Each request is a
 * connection of its own: a packet with what is wanted, and a packet with the descriptors. Both sides look at
 * the other one's user. A request has the user namespace in which its guard was started, which must be the
 * holder's, too: a process in a container cannot open that, and so gets no files of the host from here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/io.h"
#include "guard.h"
#include "guard_hold.h"

enum { LIMIT_S = 1 };

char *guard_describe_image(const char *image)
{
	struct stat found;
	char *request = NULL;

	if (stat(image, &found) < 0 ||
	    asprintf(&request, "%llx.%llx.%llx.%llx.%llx %s", (unsigned long long)found.st_dev,
		     (unsigned long long)found.st_ino, (unsigned long long)found.st_size,
		     (unsigned long long)ce_in_ns(found.st_mtim),
		     (unsigned long long)ce_in_ns(found.st_ctim), image) < 0)
		return NULL;
	return request;
}

char *guard_find_copy(const struct guard *guard, const char *image)
{
	struct stat found;
	char *path = NULL;
	CE_AUTO_FREE char *request = guard->staged != NULL ? guard_describe_image(image) : NULL;

	if (request == NULL ||
	    asprintf(&path, "%s/%.*s", guard->staged, (int)strcspn(request, " "), request) < 0)
		return NULL;
	if (lstat(path, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
	    (found.st_mode & 0777) == 0400)
		return path;
	free(path);
	return NULL;
}

const char *guard_image_path(const char *request)
{
	const char *blank = strchr(request, ' ');

	return blank != NULL ? blank + 1 : "";
}

int guard_hold_socket(const char *name, struct sockaddr_un *address, socklen_t *size)
{
	size_t length = strlen(name);

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (length >= sizeof address->sun_path)
		return -1;
	memcpy(address->sun_path + 1, name, length);
	*size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

void guard_limit_waiting(int fd)
{
	const struct timeval limit = { .tv_sec = LIMIT_S };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Send a request to the holder, and receive its descriptors. Return 0, or -1 without an answer. */
static int ask(const struct guard_hold *hold, const char *request, int fds[CE_MAX_FDS])
{
	struct sockaddr_un address;
	socklen_t size;
	char answer;
	CE_AUTO_FD holder = guard_hold_socket(hold->holder, &address, &size);

	if (holder < 0)
		return -1;
	guard_limit_waiting(holder);
	if (connect(holder, (struct sockaddr *)&address, size) < 0 || !guard_is_own(holder) ||
	    ce_send(holder, request, strlen(request) + 1, &hold->host_ns, 1) < 0)
		return -1;
	return ce_receive(holder, 0, &answer, 1, fds) == 1 ? 0 : -1;
}

int guard_visit_holder(struct guard *guard)
{
	struct guard_hold *hold = &guard->hold;
	int fds[CE_MAX_FDS], rc = -1;

	hold->host_ns = open(GUARD_HOST_NS, O_RDONLY | O_CLOEXEC);
	if (hold->holder == NULL || hold->host_ns < 0)
		return -1;
	if (ask(hold, GUARD_ASK_NAMESPACE, fds) == 0) {
		rc = setns(fds[0], CLONE_NEWUSER);
		ce_close_all(fds);
	}
	if (rc < 0)
		hold->holder = NULL;
	return rc;
}

/* Return whether the server of a mount answers: the kernel asks it for each statfs. A child waits, which can
 * be killed. */
static int is_served(const char *place)
{
	struct statfs found;
	pid_t pid = fork();

	if (pid == 0)
		_exit(statfs(place, &found) == 0 ? 0 : 1);
	CE_AUTO_FD child = pid > 0 ? ce_pidfd_open(pid) : -1;
	if (child < 0 || !ce_wait_readable(child, ce_now_ms() + LIMIT_S * 1000LL)) {
		if (pid > 0)
			kill(pid, SIGKILL);
		return 0;
	}
	return ce_await_child(pid) == 0;
}

/* Mount what the holder has lent, and watch its server. */
static int mount_lent(struct guard *guard, const char *place, const int fds[CE_MAX_FDS])
{
	struct guard_hold *hold = &guard->hold;
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = hold->count };

	if (fds[0] < 0 || fds[1] < 0 || mkdir(place, 0755) < 0)
		return -1;
	if (syscall(SYS_move_mount, fds[0], "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH) == 0) {
		if (is_served(place) && epoll_ctl(hold->ends, EPOLL_CTL_ADD, fds[1], &event) == 0)
			return 0;
		(void)umount2(place, MNT_DETACH);
	}
	(void)rmdir(place);
	return -1;
}

int guard_lender_ended(struct guard *guard)
{
	struct epoll_event event;

	if (epoll_wait(guard->hold.ends, &event, 1, 0) != 1)
		return 0;
	const char *asked = guard->hold.images[event.data.u64];
	CE_AUTO_FREE char *now = guard_describe_image(guard_image_path(asked));
	if (now == NULL || strcmp(now, asked) != 0)
		return guard_image_gone(guard, guard_image_path(asked));
	errno = 0;
	return guard_fail(guard,
			  "the process that serves the image to the steps of the job (ce-image) ended");
}

/* Return whether the mount is used in another place: its figures are shown once. */
static int has_lent(const struct guard_hold *hold, const char *request)
{
	size_t i = 0;

	while (i < hold->count && strcmp(hold->images[i], request) != 0)
		i++;
	return i < hold->count;
}

int guard_borrow(struct guard *guard, const char *image, const char *place)
{
	struct guard_hold *hold = &guard->hold;
	int fds[CE_MAX_FDS];

	if (hold->holder == NULL || hold->count == GUARD_MAX_FUSE)
		return -1;
	CE_AUTO_FREE char *request = guard_describe_image(image);
	if (hold->ends < 0)
		hold->ends = epoll_create1(EPOLL_CLOEXEC);
	/* the holder may have opened the image before there was a copy */
	CE_AUTO_FREE char *copy = guard_find_copy(guard, image);
	if (request == NULL || hold->ends < 0 || copy != NULL || ask(hold, request, fds) < 0)
		return -1;
	int rc = mount_lent(guard, place, fds);
	if (rc == 0) {
		/* the server's pidfd stays open, which the epoll descriptor does not see to */
		hold->servers[hold->count] = fds[1];
		hold->figures[hold->count] = has_lent(hold, request) ? -1 : ce_release_fd(&fds[2]);
		hold->images[hold->count++] = request;
		request = NULL;
		fds[1] = -1;
	}
	ce_close_all(fds);
	return rc;
}

void guard_wake_lenders(const struct guard *guard)
{
	for (size_t i = 0; guard->hold.server == NULL && i < guard->hold.count; i++)
		(void)ce_pidfd_kill(guard->hold.servers[i], SIGCONT);
}
