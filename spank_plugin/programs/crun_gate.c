/*
 * ce-gate: the OCI runtime of a container whose image still lacks the node's libraries; it becomes crun once
 * they are in place. So they are found and mounted while Podman and conmon start. The guard holds the gate, a
 * FIFO, open until then, and removes it before closing it (guard_podman.c): if the FIFO does not exist, the
 * gate is open already, and if it exists, its end of file arrives only when the guard is ready. If the guard
 * fails, it ends, and this process with it.
 *
 * Runs as the user, started by conmon and Podman in the guard's PID namespace. Static, because it adds one
 * more execve to every start.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* the guard is process 1, and its working directory is the session's
 * (container_engine/node/start/podman.py) */
#define GATE "/proc/1/cwd/gate"

enum { NOT_STARTED = 125 };

/* where Podman itself would look, in the same order */
static const char *const places[] = { "/usr/bin/crun",	     "/usr/sbin/crun",
				      "/usr/local/bin/crun", "/usr/local/sbin/crun",
				      "/sbin/crun",	     "/bin/crun",
				      "/run/current-system/sw/bin/crun" };

static int wait_for_guard(void)
{
	char byte;
	ssize_t n = -1;
	int fd = open(GATE, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	while ((n = read(fd, &byte, 1)) < 0 && errno == EINTR)
		;
	return n == 0 ? close(fd) : -1;
}

int main(int argc, char **argv)
{
	(void)argc;
	if (wait_for_guard() < 0) {
		fprintf(stderr, "ce-gate: " GATE ": %s\n", strerror(errno));
		return NOT_STARTED;
	}
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		execv(places[i], argv);
		if (errno != ENOENT && errno != ENOTDIR)
			break;
	}
	fprintf(stderr, "ce-gate: crun: %s\n", strerror(errno));
	return NOT_STARTED;
}
