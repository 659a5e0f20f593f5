/* A container that lives with its job: who may join it, and what its guard takes over from others. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/guard.h"
#include "guard/stage.h"
#include "harness.h"

enum { OTHER = 61001, LONG = 8000 };

static const char *control_socket, *lock;

/* Set up a guard with a container of two descriptors and one image, and open its control socket. */
static void open_control_socket(void)
{
	const char *directory = test_directory();
	int fds[2];

	lock = test_file(directory, "lock", "", 0666);
	control_socket = test_path(directory, "door");
	guard.job_container.lock = open(lock, O_RDWR | O_CLOEXEC);
	guard.job_container.control_socket = strdup(control_socket);
	CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
	CHECK_INT(guard_keep_container(&guard, fds, 2), 0);
	guard.fuse_image[0] = strdup("/image.sqsh");
	guard.fuse_device[0] = dup(fds[0]);
	guard.fuse_figures[0] = -1;
	guard.fuse_count = 1;
	guard_open_control_socket(&guard);
	CHECK(guard.listening >= 0);
	CHECK_INT(chmod(control_socket, 0666), 0);
}

static int visit(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int visitor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", control_socket);
	CHECK_INT(connect(visitor, (struct sockaddr *)&address, sizeof address), 0);
	return visitor;
}

static ssize_t next(int visitor, char *text, int *count)
{
	int fds[CE_MAX_FDS];
	ssize_t size = ce_receive(visitor, 0, text, 64, fds);

	for (*count = 0; size > 0 && *count < CE_MAX_FDS && fds[*count] >= 0; ++*count)
		close(fds[*count]);
	return size;
}

static void clear(void)
{
	free(guard.fuse_image[0]);
	free(guard.job_container.control_socket);
}

TEST("a visitor of the guard's own user gets the container, its images, and a last packet")
{
	char text[64] = "";
	int count;

	open_control_socket();
	CE_AUTO_FD visitor = visit();
	guard_answer_control_socket(&guard);
	CHECK_INT(next(visitor, text, &count), 1);
	CHECK_INT(count, 3); /* two, and the guard's user namespace */
	CHECK_INT(next(visitor, text, &count), sizeof "/image.sqsh" - 1);
	CHECK(strncmp(text, "/image.sqsh", sizeof "/image.sqsh" - 1) == 0 && count == 1);
	CHECK_INT(next(visitor, text, &count), 1);
	CHECK(text[0] == '\0' && count == 0);
	CHECK_INT(next(visitor, text, &count), 0);
	clear();
}

static void visit_as_another(void)
{
	char text[64];
	int count;

	CHECK_INT(setresuid(OTHER, OTHER, OTHER), 0);
	CE_AUTO_FD visitor = visit();
	CHECK_INT(next(visitor, text, &count), 0);
}

TEST("a visitor of another user gets nothing")
{
	int status;

	test_needs_root();
	open_control_socket();
	pid_t pid = fork();
	if (pid == 0) {
		visit_as_another();
		_exit(0);
	}
	while (waitpid(pid, &status, WNOHANG) == 0)
		guard_answer_control_socket(&guard);
	CHECK_INT(status, 0);
	clear();
}

TEST("a visitor who reads nothing does not hold up the guard, however much there is to say")
{
	static char image[LONG + 1];

	open_control_socket();
	clear();
	guard.job_container.control_socket = NULL;
	memset(image, 'i', LONG);
	for (guard.fuse_count = 0; guard.fuse_count < GUARD_MAX_FUSE; guard.fuse_count++) {
		guard.fuse_image[guard.fuse_count] = strdup(image);
		guard.fuse_device[guard.fuse_count] = guard.job_container.lock;
	}
	CE_AUTO_FD silent = visit();
	CE_AUTO_FD gone = visit();
	ce_close_fd(&gone);
	for (int i = 0; i < 3; i++)
		guard_answer_control_socket(&guard);
	while (guard.fuse_count > 0)
		free(guard.fuse_image[--guard.fuse_count]);
}

TEST("if the connection of an image is lost, a visitor notices that something is missing")
{
	char text[64];
	int count;

	open_control_socket();
	ce_close_fd(&guard.fuse_device[0]);
	CE_AUTO_FD visitor = visit();
	guard_answer_control_socket(&guard);
	CHECK_INT(next(visitor, text, &count), 1);
	CHECK_INT(next(visitor, text, &count), 0);
	clear();
}

TEST("an open control socket is known by the lock, which others can only share")
{
	open_control_socket();
	CE_AUTO_FD other = open(lock, O_RDWR | O_CLOEXEC);
	CHECK(flock(other, LOCK_EX | LOCK_NB) < 0);
	CHECK_INT(flock(other, LOCK_SH | LOCK_NB), 0);
	clear();
}

TEST("a container that ends with its step has no control socket")
{
	int fds[2];

	CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
	CHECK_INT(guard_keep_container(&guard, fds, 2), 0);
	CHECK_INT(guard.job_container.count, 0);
	guard_open_control_socket(&guard);
	CHECK_INT(guard.listening, -1);
}

TEST("if the control socket cannot be made, the container stays locked, like one that starts")
{
	const char *directory = test_directory();
	int fds[2];

	lock = test_file(directory, "lock", "", 0666);
	guard.job_container.lock = open(lock, O_RDWR | O_CLOEXEC);
	guard.job_container.control_socket = strdup(test_file(directory, "door", "mine", 0666));
	CHECK_INT(flock(guard.job_container.lock, LOCK_EX), 0);
	CHECK_INT(pipe2(fds, O_CLOEXEC), 0);
	CHECK_INT(guard_keep_container(&guard, fds, 2), 0);
	guard_open_control_socket(&guard);
	CHECK_INT(guard.listening, -1);
	CE_AUTO_FD other = open(lock, O_RDWR | O_CLOEXEC);
	CHECK(flock(other, LOCK_SH | LOCK_NB) < 0);
	free(guard.job_container.control_socket);
}

TEST("descriptors that are missing, and connections that are none, end the guard's start")
{
	const char *directory = test_directory();
	char text[512];

	guard.log = ce_memory_file("log", "", 0);
	CHECK(guard.log >= 0);
	CHECK_INT(RUN("keep\0002\0999\0/door"), -1);
	ce_error_clear(&guard.err);
	CHECK_INT(RUN("joined\0004\0999\0999\0999\0999"), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "the running container's descriptors are missing");
	ce_error_clear(&guard.err);
	CE_AUTO_FD file = open(test_file(directory, "file", "", 0644), O_RDWR);
	int length = snprintf(text, sizeof text, "fuse-again%c3%c/bin/true%c/i.sqsh%c%d", 0, 0, 0, 0, file);
	size_t size = (size_t)length + 1;
	CHECK_INT(run(text, size), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "cannot serve the image of the running container");
}

TEST("a directory that exists already is used only for a container that continues")
{
	const char *directory = test_directory();
	char text[1024];

	guard.log = ce_memory_file("log", "", 0);
	int length = snprintf(text, sizeof text, "overlay%c4%c%s%c%s/work%c%s/root%c%s", 0, 0, directory, 0,
			      directory, 0, directory, 0, directory);
	size_t size = (size_t)length + 1;
	CHECK_INT(run(text, size), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "cannot make");
}
