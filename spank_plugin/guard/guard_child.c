#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/image_figures.h"
#include "common/image_gone.h"
#include "common/io.h"
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

/* Handle the end of a child that runs beside the current operation: a server must not end, and a task guard
 * only by itself, since nobody else ends its container, or keeps its limits. */
static int other_ended(struct guard *guard, pid_t pid, int status)
{
	struct guard_tasks *tasks = &guard->tasks;

	for (size_t i = 0; i < tasks->guard_count; i++) {
		if (tasks->guards[i] != pid)
			continue;
		tasks->guards[i] = tasks->guards[--tasks->guard_count];
		if (!WIFSIGNALED(status))
			return 0;
		return guard_fail_ended(guard, "the process that guards a task's container", status);
	}
	for (size_t i = 0; i < guard->fuse_count; i++) {
		if (guard->fuse[i] == pid && guard->hold.forget != NULL)
			guard->hold.forget(guard, i), guard->fuse[i] = 0;
		else if (guard->fuse[i] == pid)
			return server_ended(guard, guard->fuse_image[i], status);
	}
	return 0;
}

/* Reap all children that have ended. Return 1 and store the status if `wanted` is among them, else 0; -1
 * after guard_fail if an image server has ended, or a task guard was killed. */
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
	if (guard->is_task_guard && guard->init >= 0)
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
		/* a task guard finishes a container even if the task that asked for it ends meanwhile */
		{ .fd = guard->is_task_guard ? -1 : guard->control, .events = POLLIN },
		{ .fd = guard->init, .events = POLLIN },
		{ .fd = guard->signals, .events = POLLIN },
		{ .fd = guard->listening, .events = POLLIN },
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
		(guard->hold.lend != NULL ? guard->hold.lend : guard_answer_control_socket)(guard);
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

/* ---- starting programs ------------------------------------------------------------------------- */

static void become_child(struct guard *guard, const char *const argv[], const char *copy, int keep,
			 int input, int output)
{
	int in = input >= 0 ? input : open("/dev/null", O_RDONLY | O_CLOEXEC);

	ce_default_signals();
	/* signals to the step must not end an image server before the session; Podman, which also starts the
	 * image's entrypoint, gets them */
	if (keep >= 0)
		ce_ignore_step_signals();
	if (in < 0 || dup2(in, 0) < 0 || dup2(output, 1) < 0 || dup2(guard->log, 2) < 0)
		_exit(CE_EXIT_ENGINE);
	if (keep >= 0 && fcntl(keep, F_SETFD, 0) < 0)
		_exit(CE_EXIT_ENGINE);
	umask(guard->umask);
	/* execv and execvp do not change the strings; their prototypes predate const */
	if (copy != NULL)
		execv(copy, (char *const *)(uintptr_t)argv);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(GUARD_NOT_STARTED);
}

static pid_t spawn(struct guard *guard, const char *const argv[], const char *copy, int keep, int input,
		   int output)
{
	pid_t pid = fork();

	if (pid < 0)
		return guard_fail(guard, "cannot start %s", argv[0]);
	if (pid == 0)
		become_child(guard, argv, copy, keep, input, output);
	return pid;
}

int guard_clone_device(int device)
{
	CE_AUTO_FD clone = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	uint32_t number = (uint32_t)device;
	int made = clone;

	if (clone < 0 || ioctl(clone, FUSE_DEV_IOC_CLONE, &number) < 0)
		return -1;
	clone = -1;
	return made;
}

/* Return a memory file in which the servers of a mount count, -1 without memory. Its size stays: they map
 * it, and have read what may be hostile. */
static int make_figures(const struct guard *guard, const char *image)
{
	int is_shared = guard->hold.server != NULL || guard->job_container.lock >= 0;
	struct ce_figures none = { .is_shared = (uint64_t)is_shared };
	size_t length = strlen(image), room = sizeof none.image - 1;
	CE_AUTO_FD file = memfd_create(CE_FIGURES, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	snprintf(none.image, sizeof none.image, "%s", image + (length > room ? length - room : 0));
	if (file < 0 || ce_write_all(file, &none, sizeof none) < 0 ||
	    fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return -1;
	return ce_release_fd(&file);
}

int guard_start_server(struct guard *guard, const char *server, const char *image, int device,
		       const char *mode, int reads, int figures)
{
	char target[32];

	/* libfuse takes an open device as /dev/fd/N, so that no setuid fusermount is needed */
	snprintf(target, sizeof target, "/dev/fd/%d", device);
	CE_AUTO_FREE char *copy = guard_find_copy(guard, image);
	const char *const argv[] = { server, copy != NULL ? copy : image, target, mode, NULL };
	if (figures < 0)
		figures = make_figures(guard, image);
	guard->fuse_figures[guard->fuse_count] = figures;
	pid_t pid = spawn(guard, argv, NULL, device, figures, reads < 0 ? guard->log : reads);
	if (pid < 0)
		return -1;
	guard->fuse_image[guard->fuse_count] = strdup(image);
	guard->fuse_device[guard->fuse_count] =
		guard->job_container.lock >= 0 ? guard_clone_device(device) : -1;
	guard->fuse[guard->fuse_count++] = pid;
	return 0;
}

int guard_run(struct guard *guard, const char *what, char *const argv[], const char *copy, int output)
{
	int status = 0;
	pid_t pid = spawn(guard, (const char *const *)argv, copy, -1, -1, output);

	if (pid < 0 || guard_wait(guard, pid, &status) < 0)
		return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return guard_fail_ended(guard, what, status);
}
