/*
 * A step asks the job's holder of images at an abstract socket, which nothing outlives. Each request is a
 * connection of its own: a packet with what is wanted, and a packet with the descriptors. Both sides look at
 * the other one's user. A request has the user namespace in which its guard was started, which must be the
 * holder's, too: a process in a container cannot open that, and so gets no files of the host from here.
 */
#define _GNU_SOURCE
#include "guard_hold.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "guard_door.h"
#include "guard_events.h"
#include "guard_ops.h"

enum { BACKLOG = 64, LIMIT_S = 1, REQUEST = PATH_MAX + 128 };
/* the request for the holder's user namespace; any other names an image */
#define NAMESPACE ""
#define HOST_NS "/proc/self/ns/user"

/* Return the request for an image, which has the identity of its file as this process sees it; NULL if it
 * cannot be made. */
static char *describe(const char *image)
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

static const char *path_of(const char *request)
{
	const char *blank = strchr(request, ' ');

	return blank != NULL ? blank + 1 : "";
}

/* Return a socket and its address; -1 if the name is too long. */
static int named_socket(const char *name, struct sockaddr_un *address, socklen_t *size)
{
	size_t length = strlen(name);

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (length >= sizeof address->sun_path)
		return -1;
	memcpy(address->sun_path + 1, name, length);
	*size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
}

static void limit_waiting(int fd)
{
	const struct timeval limit = { .tv_sec = LIMIT_S };

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* ---- a step ------------------------------------------------------------------------------------ */

/* Send a request to the holder, and receive its descriptors. Return 0, or -1 without an answer. */
static int ask(const struct guard_hold *hold, const char *request, int fds[CE_MAX_FDS])
{
	struct sockaddr_un address;
	socklen_t size;
	char answer;
	CE_AUTO_FD holder = named_socket(hold->holder, &address, &size);

	if (holder < 0)
		return -1;
	limit_waiting(holder);
	if (connect(holder, (struct sockaddr *)&address, size) < 0 || !guard_is_own(holder) ||
	    ce_send(holder, request, strlen(request) + 1, &hold->host_ns, 1) < 0)
		return -1;
	return ce_receive(holder, 0, &answer, 1, fds) == 1 ? 0 : -1;
}

int guard_visit_holder(struct guard *guard)
{
	struct guard_hold *hold = &guard->hold;
	int fds[CE_MAX_FDS], rc = -1;

	hold->holder = getenv(CE_HOLDER);
	hold->host_ns = open(HOST_NS, O_RDONLY | O_CLOEXEC);
	unsetenv(CE_HOLDER);
	if (hold->holder == NULL || hold->host_ns < 0)
		return -1;
	if (ask(hold, NAMESPACE, fds) == 0) {
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

int guard_borrow(struct guard *guard, const char *image, const char *place)
{
	struct guard_hold *hold = &guard->hold;
	int fds[CE_MAX_FDS];

	if (hold->holder == NULL || hold->count == GUARD_MAX_FUSE)
		return -1;
	CE_AUTO_FREE char *request = describe(image);
	if (hold->ends < 0)
		hold->ends = epoll_create1(EPOLL_CLOEXEC);
	if (request == NULL || hold->ends < 0 || ask(hold, request, fds) < 0)
		return -1;
	int rc = mount_lent(guard, place, fds);
	if (rc == 0) {
		/* the server's pidfd stays open, which the epoll descriptor does not see to */
		hold->servers[hold->count] = fds[1];
		hold->images[hold->count++] = request;
		request = NULL;
		fds[1] = -1;
	}
	ce_close_all(fds);
	return rc;
}

int guard_lender_ended(struct guard *guard)
{
	struct epoll_event event;

	if (epoll_wait(guard->hold.ends, &event, 1, 0) != 1)
		return 0;
	const char *asked = guard->hold.images[event.data.u64];
	CE_AUTO_FREE char *now = describe(path_of(asked));
	if (now == NULL || strcmp(now, asked) != 0)
		return guard_image_gone(guard, path_of(asked));
	errno = 0;
	return guard_fail(guard,
			  "the process that serves the image to the steps of the job (ce-image) ended");
}

void guard_wake_lenders(const struct guard *guard)
{
	for (size_t i = 0; guard->hold.server == NULL && i < guard->hold.count; i++)
		(void)ce_pidfd_kill(guard->hold.servers[i], SIGCONT);
}

/* ---- the holder -------------------------------------------------------------------------------- */

static void name_place(size_t number, char place[32])
{
	snprintf(place, 32, "image%zu", number);
}

/* Return the number of an image that is served; else mount it, and start its server. -1 if that fails. The
 * path must lead to the same file here as where it was asked for. */
static int find_image(struct guard *guard, const char *request)
{
	struct guard_hold *hold = &guard->hold;
	char place[32];

	for (size_t i = 0; i < hold->count; i++) {
		if (hold->images[i] != NULL && strcmp(hold->images[i], request) == 0)
			return (int)i;
	}
	CE_AUTO_FREE char *here = describe(path_of(request));
	if (here == NULL || strcmp(here, request) != 0)
		return -1;
	name_place(hold->count, place);
	char *args[] = { (char *)hold->server, (char *)path_of(request), place, NULL };
	if (guard_op_fuse(guard, args) < 0)
		return -1;
	hold->images[hold->count] = here;
	here = NULL;
	return (int)hold->count++;
}

static void lend(struct guard *guard, int visitor, const char *request)
{
	char place[32];
	int number = find_image(guard, request);

	if (number < 0)
		return;
	name_place((size_t)number, place);
	CE_AUTO_FD tree = (int)syscall(SYS_open_tree, AT_FDCWD, place, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	CE_AUTO_FD server = ce_pidfd_open(guard->fuse[number]);
	const int fds[] = { tree, server };
	if (tree >= 0 && server >= 0)
		(void)ce_send(visitor, "", 1, fds, 2);
}

static int is_host_ns(const struct guard *guard, int fd)
{
	struct stat given, own;

	return fd >= 0 && fstat(fd, &given) == 0 && fstat(guard->hold.host_ns, &own) == 0 &&
	       given.st_dev == own.st_dev && given.st_ino == own.st_ino;
}

void guard_lend(struct guard *guard)
{
	char request[REQUEST];
	int fds[CE_MAX_FDS];
	CE_AUTO_FD visitor = accept4(guard->kept.listening, NULL, NULL, SOCK_CLOEXEC);

	if (visitor < 0 || !guard_is_own(visitor))
		return;
	limit_waiting(visitor);
	ssize_t n = ce_receive(visitor, 0, request, sizeof request, fds);
	if (n <= 0)
		return;
	if (request[n - 1] == '\0' && is_host_ns(guard, fds[0])) {
		CE_AUTO_FD own_ns = open(HOST_NS, O_RDONLY | O_CLOEXEC);
		if (request[0] != '\0')
			lend(guard, visitor, request);
		else if (own_ns >= 0)
			(void)ce_send(visitor, "", 1, &own_ns, 1);
	}
	ce_close_all(fds);
}

void guard_forget_image(struct guard *guard, size_t number)
{
	char place[32];

	name_place(number, place);
	(void)umount2(place, MNT_DETACH);
	free(guard->hold.images[number]);
	guard->hold.images[number] = NULL;
}

int guard_op_hold(struct guard *guard, char **args)
{
	struct sockaddr_un address;
	socklen_t size;

	ce_close_fd(&guard->control);
	guard->hold.server = args[1];
	guard->kept.listening = named_socket(args[0], &address, &size);
	if (guard->kept.listening < 0 ||
	    bind(guard->kept.listening, (struct sockaddr *)&address, size) < 0 ||
	    listen(guard->kept.listening, BACKLOG) < 0)
		return guard_fail(guard, "cannot listen at '%s'", args[0]);
	CE_AUTO_FD self = ce_pidfd_open(getpid());
	(void)ce_send(guard->life, "", 1, &self, 1);
	while (guard_events(guard, -1) == 0)
		;
	return -1;
}
