/* The holder of images: what it answers, and how it mounts them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io.h"
#include "guard.h"
#include "guard_hold.h"
#include "guard_ops.h"

enum { BACKLOG = 64, REQUEST = PATH_MAX + 128 };

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
	CE_AUTO_FREE char *here = guard_describe_image(guard_image_path(request));
	if (here == NULL || strcmp(here, request) != 0)
		return -1;
	name_place(hold->count, place);
	char *args[] = { (char *)hold->server, (char *)guard_image_path(request), place, NULL };
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
	const int fds[] = { tree, server, guard->fuse_figures[number] };
	if (tree >= 0 && server >= 0)
		(void)ce_send(visitor, "", 1, fds, fds[2] < 0 ? 2 : 3);
}

static int is_host_ns(const struct guard *guard, int fd)
{
	struct stat given, own;

	return fd >= 0 && fstat(fd, &given) == 0 && fstat(guard->hold.host_ns, &own) == 0 &&
	       given.st_dev == own.st_dev && given.st_ino == own.st_ino;
}

static void answer_visitor(struct guard *guard)
{
	char request[REQUEST];
	int fds[CE_MAX_FDS];
	CE_AUTO_FD visitor = accept4(guard->listening, NULL, NULL, SOCK_CLOEXEC);

	if (visitor < 0 || !guard_is_own(visitor))
		return;
	guard_limit_waiting(visitor);
	ssize_t n = ce_receive(visitor, 0, request, sizeof request, fds);
	if (n <= 0)
		return;
	if (request[n - 1] == '\0' && is_host_ns(guard, fds[0])) {
		CE_AUTO_FD own_ns = open(GUARD_HOST_NS, O_RDONLY | O_CLOEXEC);
		if (request[0] != '\0')
			lend(guard, visitor, request);
		else if (own_ns >= 0)
			(void)ce_send(visitor, "", 1, &own_ns, 1);
	}
	ce_close_all(fds);
}

static void forget_image(struct guard *guard, size_t number)
{
	char place[32];

	name_place(number, place);
	(void)umount2(place, MNT_DETACH);
	free(guard->hold.images[number]);
	guard->hold.images[number] = NULL;
	ce_close_fd(&guard->fuse_figures[number]);
}

int guard_op_hold(struct guard *guard, char **args)
{
	struct sockaddr_un address;
	socklen_t size;

	ce_close_fd(&guard->control);
	guard->hold.server = args[1];
	guard->hold.lend = answer_visitor;
	guard->hold.forget = forget_image;
	guard->listening = guard_hold_socket(args[0], &address, &size);
	if (guard->listening < 0 || bind(guard->listening, (struct sockaddr *)&address, size) < 0 ||
	    listen(guard->listening, BACKLOG) < 0)
		return guard_fail(guard, "cannot listen at '%s'", args[0]);
	CE_AUTO_FD self = ce_pidfd_open(getpid());
	(void)ce_send(guard->life, "", 1, &self, 1);
	while (guard_events(guard, -1) == 0)
		;
	return -1;
}
