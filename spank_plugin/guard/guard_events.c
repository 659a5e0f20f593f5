#define _GNU_SOURCE
#include "guard_events.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/image_gone.h"
#include "common/io.h"
#include "guard_door.h"
#include "guard_hold.h"

/* ---- children ---------------------------------------------------------------------------------- */

/* the exit code of the dynamic loader if a library of a program is missing */
#define NOT_LOADED 127

static int server_ended(struct guard *guard, const char *image, int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == CE_IMAGE_GONE)
		return guard_image_gone(guard, image);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		errno = 0;
		return guard_fail(guard, "the kernel no longer asks for the image: its FUSE file system was "
					 "unmounted or aborted on the node");
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_LOADED)
		status = W_EXITCODE(GUARD_NOT_STARTED, 0);
	return guard_fail_ended(guard, "the process that serves the image (ce-image)", status);
}

/* Handle the end of a child that runs beside the current operation: a server must not end. */
static int other_ended(struct guard *guard, pid_t pid, int status)
{
	for (size_t i = 0; i < guard->fuse_count; i++) {
		if (guard->fuse[i] == pid && guard->hold.forget != NULL)
			guard->hold.forget(guard, i), guard->fuse[i] = 0;
		else if (guard->fuse[i] == pid)
			return server_ended(guard, guard->fuse_image[i], status);
	}
	return 0;
}

/* Reap all children that have ended. Return 1 and store the status if `wanted` is among them, else 0; -1
 * after guard_fail if an image server has ended. */
static int reap(struct guard *guard, pid_t wanted, int *wanted_status)
{
	struct signalfd_siginfo info;
	int status, seen = 0;
	pid_t pid;

	while (read(guard->signals, &info, sizeof info) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == wanted) {
			*wanted_status = status;
			seen = 1;
		} else if (other_ended(guard, pid, status) < 0) {
			return -1;
		}
	}
	return seen;
}

/* ---- the session ------------------------------------------------------------------------------- */

static int is_over(int fd)
{
	char byte;

	/* the plugin and the launcher send nothing that we read here: readable means closed */
	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* End this process; never return. If services have to be stopped cleanly, they need the image until then:
 * leave the end to the watching thread, which waits for them. */
static void end_session(const struct guard *guard)
{
	if (guard->is_keeper && guard->init >= 0)
		ce_pidfd_kill(guard->init, SIGKILL);
	if (atomic_load(&guard->reaper) < 0)
		_exit(0);
	for (;;)
		pause();
}

static int poll_session(struct guard *guard, int milliseconds)
{
	struct pollfd fds[] = {
		{ .fd = guard->watch, .events = POLLIN },
		{ .fd = guard->life, .events = POLLIN },
		/* a keeper finishes a container even if the task that asked for it ends meanwhile */
		{ .fd = guard->is_keeper ? -1 : guard->control, .events = POLLIN },
		{ .fd = guard->init, .events = POLLIN },
		{ .fd = guard->signals, .events = POLLIN },
		{ .fd = guard->kept.listening, .events = POLLIN },
		{ .fd = guard->tasks.socket, .events = POLLIN },
		{ .fd = guard->hold.ends, .events = POLLIN },
	};

	if (poll(fds, sizeof fds / sizeof fds[0], milliseconds) < 0)
		return errno == EINTR ? 0 : guard_fail(guard, "cannot wait for events");
	/* slurmstepd is gone, the step is over, or the launcher gave up: end everything */
	if ((fds[0].revents & POLLIN) != 0 || (fds[1].revents != 0 && is_over(guard->life)) ||
	    (fds[2].revents != 0 && is_over(guard->control)))
		end_session(guard);
	if (fds[5].revents != 0)
		(guard->hold.lend != NULL ? guard->hold.lend : guard_answer_door)(guard);
	if (fds[6].revents != 0 && guard->tasks.answer(guard) < 0)
		return -1;
	if (fds[7].revents != 0)
		return guard_lender_ended(guard);
	if ((fds[3].revents & POLLIN) != 0) {
		errno = 0;
		return guard_fail(guard, "the container's init process ended");
	}
	return 0;
}

int guard_events(struct guard *guard, int milliseconds)
{
	int status;

	if (poll_session(guard, milliseconds) < 0)
		return -1;
	return reap(guard, -1, &status) < 0 ? -1 : 0;
}

int guard_wait(struct guard *guard, pid_t pid, int *status)
{
	for (;;) {
		int seen = reap(guard, pid, status);
		if (seen != 0)
			return seen < 0 ? -1 : 0;
		if (poll_session(guard, -1) < 0)
			return -1;
	}
}
