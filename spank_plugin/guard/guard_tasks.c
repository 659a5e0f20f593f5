/*
 * A container for each task of the node. All of them share the session and one server per image. For each
 * task, a child of the guard (a task guard) makes a container by the rest of the specification, in a mount
 * namespace of its own, and ends the container when its task ends. The first container is made for the
 * launcher, which needs the environment of a container's first process, and is given to the task that asks
 * first.
 */
#define _GNU_SOURCE
#include "guard_ops.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/io.h"
#include "guard.h"
#include "guard_ops.h"

enum { MAX_PACKET = 64 * 1024, LOOK_MS = 20, SEND_S = 120 };
/* The packet of a task guard whose container has ended, with the cause. CE_ASK is also process 1's packet
 * to the first task guard, with what the task has sent, but not the socket for the report. */
#define ENDED "X"

/* ---- a task guard ------------------------------------------------------------------------------ */

/* Make a mount namespace and mount the container's own tmpfs in it. */
static int make_mounts(struct guard *guard, const char *size, const char *dir)
{
	CE_AUTO_FREE char *options = NULL, *share = NULL;
	int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);

	share = guard_memory_share(size, guard_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup"), total);
	if (share == NULL || asprintf(&options, "mode=0755,size=%s", share) < 0)
		return guard_fail(guard, "out of memory");
	if (unshare(CLONE_NEWNS) < 0)
		return guard_fail(guard, "cannot make a mount namespace");
	if (mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 || chdir(dir) < 0)
		return guard_fail(guard, "cannot mount a tmpfs on '%s'", dir);
	return 0;
}

/* Turn this child into a task guard: close what belongs to process 1, except the socket at which the end of a
 * container is reported, and make a log of its own. */
static int begin_task_guard(struct guard *guard, int control)
{
	struct guard_tasks *tasks = &guard->tasks;

	ce_close_fd(&tasks->socket);
	ce_close_all(tasks->first);
	ce_close_fd(&tasks->first_guard);
	ce_close_fd(&guard->life);
	ce_close_fd(&guard->watch);
	ce_close_fd(&guard->control);
	ce_close_fd(&guard->log);
	ce_close_fd(&guard->hold.ends);
	guard->control = control;
	guard->is_task_guard = 1;
	tasks->guard_count = 0;
	guard->fuse_count = 0;
	guard->log = ce_memory_file("ce-log", "", 0);
	return guard->log >= 0 ? 0 : guard_fail(guard, "cannot set up");
}

/* Wait for the task of the first container, which was made before any task asked for it. Take its pidfd and
 * the file of its outcome; they are -1 if process 1 has ended. */
static void await_task(struct guard *guard)
{
	int fds[CE_MAX_FDS];
	char word;

	if (ce_receive(guard->control, 0, &word, 1, fds) != 1)
		return;
	guard->watch = fds[0];
	guard->limits.outcome = fds[1];
}

static void tell_end(const struct guard *guard)
{
	char text[1024];

	snprintf(text, sizeof text, ENDED "%s", ce_error_text(&guard->err));
	(void)ce_send(guard->tasks.others, text, strlen(text), NULL, 0);
}

/* Make a container, report it to `control`, and end it when its task ends, or when it reaches a limit; never
 * return. `task` is the task's pidfd, `outcome` a file for what becomes of it; they are -1 if they arrive
 * later at `control`. */
static void keep(struct guard *guard, int control, int task, int outcome)
{
	struct guard_tasks *tasks = &guard->tasks;

	guard->limits.outcome = outcome;
	if (begin_task_guard(guard, control) < 0 || make_mounts(guard, tasks->size, tasks->dir) < 0 ||
	    guard->run(guard, tasks->rest, tasks->rest_size) < 0) {
		guard_report_failure(guard);
		_exit(0);
	}
	guard->watch = task;
	if (task < 0)
		await_task(guard);
	ce_close_fd(&guard->control);
	if (guard->watch < 0)
		_exit(0);
	(void)guard_wait_for_end(guard);
	/* a container that has reached a limit ends alone */
	if (guard->limits.is_reached)
		ce_pidfd_kill(guard->init, SIGKILL);
	else
		tell_end(guard);
	_exit(0);
}

/* ---- process 1 --------------------------------------------------------------------------------- */

static int start_task_guard(struct guard *guard, int control, int task, int outcome)
{
	struct guard_tasks *tasks = &guard->tasks;
	pid_t pid = -1, *guards = realloc(tasks->guards, (tasks->guard_count + 1) * sizeof *guards);

	if (guards != NULL) {
		tasks->guards = guards;
		pid = fork();
	}
	if (pid == 0)
		keep(guard, control, task, outcome);
	if (pid < 0)
		return guard_fail(guard, "cannot start the process that makes a task's container");
	tasks->guards[tasks->guard_count++] = pid;
	return 0;
}

/* Pass the report of the first container on to the launcher, with our own pidfd in place of the task
 * guard's and the socket at which tasks ask for theirs. Return 0, or -1 after guard_fail. */
static int report_first(struct guard *guard, char *text, size_t size, const int fds[CE_MAX_FDS])
{
	int all[CE_MAX_FDS + 1];
	size_t count = ce_count_fds(fds);
	CE_AUTO_FD self = ce_pidfd_open(getpid());

	memcpy(all, fds, count * sizeof *fds);
	if (self < 0 || count <= CE_REPORTED_GUARD || count == CE_MAX_FDS)
		return guard_fail(guard, "cannot report the first task's container");
	all[CE_REPORTED_GUARD] = self;
	all[count++] = guard->tasks.others;
	text[0] = CE_REPORT_OF_TASKS;
	if (ce_send(guard->control, text, size, all, count) < 0)
		return guard_fail(guard, "cannot answer the launcher");
	memcpy(guard->tasks.first, fds, sizeof guard->tasks.first);
	return 0;
}

/* Pass the first task guard's packets on to the launcher, up to its report. Return 0, or -1 after
 * guard_fail; end this process if the task guard reports a failure. */
static int await_first(struct guard *guard)
{
	static char text[MAX_PACKET + 1];
	int first = guard->tasks.first_guard, fds[CE_MAX_FDS];

	for (;;) {
		while (!ce_wait_readable(first, ce_now_ms() + LOOK_MS)) {
			if (guard_events(guard, 0) < 0)
				return -1;
		}
		ssize_t n = ce_receive(first, 0, text, MAX_PACKET, fds);
		if (n <= 0)
			return guard_fail(guard, "the process that makes a task's container ended");
		if (text[0] == CE_REPORT_OF_NODE)
			return report_first(guard, text, (size_t)n, fds);
		ce_close_all(fds);
		(void)ce_send(guard->control, text, (size_t)n, NULL, 0);
		/* a failure: the launcher explains it */
		if (text[0] == CE_REPORT_FAILED)
			_exit(CE_EXIT_ENGINE);
	}
}

static char *copy(const char *text, size_t size)
{
	char *made = malloc(size + 1);

	return made != NULL ? memcpy(made, text, size) : NULL;
}

/* Give the first container to the task that has asked first, and what came with the task's request to its
 * task guard. */
static void give_first(struct guard *guard, const int fds[CE_MAX_FDS])
{
	struct guard_tasks *tasks = &guard->tasks;

	const char report = CE_REPORT_OF_NODE;

	guard_limits_promise(guard, fds[CE_ASKED_OUTCOME]);
	(void)ce_send(fds[CE_ASKED_ANSWER], &report, 1, tasks->first, ce_count_fds(tasks->first));
	(void)ce_send(tasks->first_guard, CE_ASK, 1, &fds[CE_ASKED_TASK], 2);
	ce_close_all(tasks->first);
	ce_close_fd(&tasks->first_guard);
}

static int answer_task(struct guard *guard)
{
	char text[1024];
	int fds[CE_MAX_FDS], rc = 0;
	ssize_t n = ce_receive(guard->tasks.socket, MSG_DONTWAIT, text, sizeof text - 1, fds);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (text[0] == ENDED[0]) {
		errno = 0;
		rc = guard_fail(guard, "of a task's container: %s", text + 1);
	} else if (text[0] == CE_ASK[0] && fds[CE_ASKED_COUNT - 1] >= 0) {
		if (guard->tasks.first_guard >= 0)
			give_first(guard, fds);
		else
			rc = start_task_guard(guard, fds[CE_ASKED_ANSWER], fds[CE_ASKED_TASK],
					      fds[CE_ASKED_OUTCOME]);
	}
	ce_close_all(fds);
	return rc;
}

int guard_op_each(struct guard *guard, char **args)
{
	struct guard_tasks *tasks = &guard->tasks;
	const struct timeval limit = { .tv_sec = SEND_S };
	int ends[2], control[2];

	tasks->size = strdup(args[0]);
	tasks->dir = strdup(args[1]);
	tasks->rest = copy(guard->rest, guard->rest_size);
	tasks->rest_size = guard->rest_size;
	if (tasks->size == NULL || tasks->dir == NULL || tasks->rest == NULL)
		return guard_fail(guard, "out of memory");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 ||
	    setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
		return guard_fail(guard, "cannot make a socket");
	memset(tasks->first, -1, sizeof tasks->first);
	tasks->answer = answer_task;
	tasks->socket = ends[0];
	tasks->others = ends[1];
	tasks->first_guard = control[0];
	int rc = start_task_guard(guard, control[1], -1, -1);
	close(control[1]);
	if (rc == 0)
		rc = await_first(guard);
	return rc < 0 ? -1 : GUARD_REST_DONE;
}
