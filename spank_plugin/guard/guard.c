/*
 * The guard: process 1 of a PID namespace in which everything a container owns lives. One that gets a user
 * namespace joins another one's container (guard_job_container.c).
 *
 * Runs as the user, never with a privilege. The process that is started makes the namespaces; its child,
 * process 1, does the rest. Cleanup is a property, not a procedure: when process 1 ends, for whatever reason,
 * the kernel kills every process of the namespace, and the mounts go with the last of them.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "common/outcome.h"
#include "guard.h"
#include "guard_hold.h"
#include "guard_ops.h"

enum { MAX_SPECIFICATION = 64 * 1024 * 1024 };
/* a little longer than ce-reaper's limit, shorter than the plugin's limit for us (session_end.c) */
enum { STOP_MS = 1500 };

/* ---- process 1 --------------------------------------------------------------------------------- */

/* Signal the end of the session to ce-reaper, and wait until it closes its end: the
 * services are stopped then. */
static void stop_services(int reaper)
{
	if (reaper < 0)
		return;
	shutdown(reaper, SHUT_WR);
	ce_wait_readable(reaper, ce_now_ms() + STOP_MS);
}

/* Wait for the end of the session in a thread of its own. A system call on the image waits for the
 * image's server, which may itself be stopped or wait for a dead file server, and the calling thread
 * notices nothing else meanwhile. Once the server has the request, not even SIGKILL ends that wait, so
 * the server is killed first. */
static void *watch_for_end(void *context)
{
	const struct guard *guard = context;
	struct pollfd fds[] = { { .fd = guard->watch, .events = POLLIN }, { .fd = guard->life } };

	while (poll(fds, sizeof fds / sizeof fds[0], -1) < 0 && errno == EINTR)
		;
	stop_services(atomic_load(&guard->reaper));
	guard_wake_lenders(guard);
	/* every process of our PID namespace but this one */
	kill(-1, SIGKILL);
	_exit(0);
}

static int start_watching(struct guard *guard)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, watch_for_end, guard);
	return errno == 0 ? 0 : guard_fail(guard, "cannot start a thread");
}

/* Wait for the launcher, which sends a byte once its own answer has reached the plugin, and with it the
 * socket to ce-reaper, if there are services. If the launcher ends before that, in whatever way, its socket
 * closes and guard_events ends the session. */
static int wait_for_launcher(struct guard *guard)
{
	int fds[CE_MAX_FDS];
	char word;

	for (;;) {
		ssize_t n = ce_receive(guard->control, MSG_DONTWAIT, &word, 1, fds);
		if (n == 1) {
			if (fds[0] >= 0)
				atomic_store(&guard->reaper, fds[0]);
			ce_close_fd(&guard->control);
			return 0;
		}
		if (guard_events(guard, -1) < 0)
			return -1;
	}
}

static int process_one(struct guard *guard, int specification)
{
	size_t size = 0;
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	guard->stage = "start";
	if (sigprocmask(SIG_BLOCK, &child, NULL) < 0 ||
	    (guard->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK)) < 0 ||
	    (guard->log = ce_memory_file("ce-log", "", 0)) < 0)
		return guard_fail(guard, "cannot set up");
	if (start_watching(guard) < 0)
		return -1;
	CE_AUTO_FREE char *text = ce_read_all(specification, MAX_SPECIFICATION, &size);
	if (text == NULL)
		return guard_fail(guard, "cannot read the specification");
	return guard_run_operations(guard, text, size);
}

/* The tasks may run before the launcher is done: from here on the plugin learns the cause of an end. */
static void serve(struct guard *guard)
{
	if (wait_for_launcher(guard) == 0) {
		guard_open_control_socket(guard);
		/* the memory of what was read for the start, for as long as the step runs */
		(void)malloc_trim(0);
		(void)guard_wait_for_end(guard);
	}
	const char *cause = ce_error_text(&guard->err);
	guard_limits_note_end(&guard->limits, cause);
	/* stop the container at once, but do not kill it yet: with its tasks, the step's output would end
	 * before the plugin has printed the cause */
	int is_limit = guard->limits.is_reached && guard->life >= 0;
	if (is_limit)
		kill(-1, SIGSTOP);
	if (guard->life >= 0)
		(void)ce_send(guard->life, cause, strlen(cause), NULL, 0);
	if (is_limit)
		ce_wait_readable(guard->life, ce_now_ms() + CE_REPORT_MS);
	for (size_t i = 0; i < guard->fuse_count; i++)
		free(guard->fuse_image[i]);
}

/* ---- its parent -------------------------------------------------------------------------------- */

static int write_map(struct guard *guard, const char *path, const char *text)
{
	CE_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || ce_write_all(fd, text, strlen(text)) < 0)
		return guard_fail(guard, "cannot write %s", path);
	return 0;
}

/* Make the PID namespace in a call of its own, so that the report can tell which limit of the node is
 * reached. */
static int make_process_namespace(struct guard *guard)
{
	guard->stage = "process-namespace";
	return unshare(CLONE_NEWPID) == 0 ? 0 : guard_fail(guard, "cannot make a PID namespace");
}

/* Enter the user namespace of a guard whose container this step joins, and make a PID namespace. */
static int join_namespaces(struct guard *guard, int user_ns)
{
	guard->stage = "namespaces";
	if (setns(user_ns, CLONE_NEWUSER) < 0)
		return guard_fail(guard, "cannot enter the user namespace of the running container");
	return make_process_namespace(guard);
}

static int make_namespaces(struct guard *guard)
{
	unsigned uid = geteuid(), gid = getegid();
	char uids[64], gids[64];

	guard->stage = "namespaces";
	if (unshare(CLONE_NEWUSER) < 0)
		return guard_fail(guard, "cannot make a user namespace");
	snprintf(uids, sizeof uids, "0 %u 1", uid);
	snprintf(gids, sizeof gids, "0 %u 1", gid);
	/* Only one id is mapped, which needs no /etc/subuid and no setuid helper. Unless setgroups is denied
	 * first, the kernel lets only root write a gid map. */
	if (write_map(guard, "/proc/self/setgroups", "deny") < 0 ||
	    write_map(guard, "/proc/self/uid_map", uids) < 0 ||
	    write_map(guard, "/proc/self/gid_map", gids) < 0)
		return -1;
	return make_process_namespace(guard);
}

/* Enter the user namespace of the guard whose container this step joins, or else that of the job's holder of
 * images, if there is one; or else make one. */
static int enter_namespaces(struct guard *guard, int user_ns)
{
	if (user_ns >= 0)
		return join_namespaces(guard, user_ns);
	return guard_visit_holder(guard) == 0 ? make_process_namespace(guard) : make_namespaces(guard);
}

int guard_live(struct guard *guard, int specification, int user_ns)
{
	/* Ctrl-C at the terminal of `ce run` is meant for the command, not for the
	 * processes that hold its container. */
	setsid();
	guard->umask = umask(022);
	if (enter_namespaces(guard, user_ns) < 0) {
		guard_report_failure(guard);
		return CE_EXIT_ENGINE;
	}
	pid_t pid = fork();
	if (pid > 0)
		return 0;
	if (pid < 0) {
		guard->stage = "start";
		guard_fail(guard, "cannot start the process that guards the container");
		guard_report_failure(guard);
		return CE_EXIT_ENGINE;
	}
	if (process_one(guard, specification) < 0) {
		guard_report_failure(guard);
		return CE_EXIT_ENGINE;
	}
	serve(guard);
	return 0;
}
