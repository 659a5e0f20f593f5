/*
 * ce-guard: process 1 of a PID namespace in which everything a container owns lives.
 *
 * ce-guard CONTROL WATCH LIFE SPECIFICATION     (open descriptors; LIFE may be -1)
 *
 * Runs as the user, never with a privilege. The process that the launcher starts makes the
 * namespaces and its child, process 1, does the rest. Cleanup is a property, not a procedure: when
 * process 1 ends, in whatever way, the kernel kills every process of the namespace and the last of
 * them takes the mounts along.
 */
#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io.h"

enum { MAX_SPECIFICATION = 64 * 1024 * 1024, MAX_REPORT = 32 * 1024, MAX_SAID = 4096, MAX_PRINTED = 24 * 1024 };
/* a little more than ce-attend's limit, less than the plugin's for us (ending.c) */
enum { STOP_MS = 1500 };

int guard_fail(struct guard *guard, const char *format, ...)
{
	va_list args;

	if (guard->err.message != NULL)
		return -1;
	guard->stage_errno = errno;
	va_start(args, format);
	if (vasprintf(&guard->err.message, format, args) < 0)
		guard->err.message = NULL;
	va_end(args);
	return -1;
}

/* ---- children ---------------------------------------------------------------------------------- */

static void become_child(struct guard *guard, const char *const argv[], int keep, int output)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ce_default_signals();
	/* a server lives as long as the session; Podman starts the image's entrypoint, too */
	if (keep >= 0)
		ce_ignore_step_signals();
	if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(guard->log, 2) < 0)
		_exit(CE_EXIT_ENGINE);
	if (keep >= 0 && fcntl(keep, F_SETFD, 0) < 0)
		_exit(CE_EXIT_ENGINE);
	/* execvp does not change the strings; its prototype is older than const */
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? CE_EXIT_NOT_FOUND : CE_EXIT_NOT_EXECUTABLE);
}

pid_t guard_spawn_to(struct guard *guard, const char *const argv[], int keep, int output)
{
	pid_t pid = fork();

	if (pid < 0)
		return guard_fail(guard, "cannot start %s", argv[0]);
	if (pid == 0)
		become_child(guard, argv, keep, output);
	return pid;
}

pid_t guard_spawn(struct guard *guard, const char *const argv[], int keep)
{
	return guard_spawn_to(guard, argv, keep, guard->log);
}

static int fuse_died(struct guard *guard, pid_t pid, int status)
{
	for (size_t i = 0; i < guard->fuse_count; i++) {
		if (guard->fuse[i] != pid)
			continue;
		errno = 0;
		if (WIFSIGNALED(status))
			return guard_fail(guard,
					  "the process that serves the image (squashfuse_ll) was "
					  "killed by signal %d",
					  WTERMSIG(status));
		return guard_fail(guard,
				  "the process that serves the image (squashfuse_ll) ended with "
				  "exit code %d",
				  WEXITSTATUS(status));
	}
	return 0;
}

/* Reaps all that ended. With `wanted` given, its status is stored and 1 returned when it is seen. */
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
		} else if (fuse_died(guard, pid, status) < 0) {
			return -1;
		}
	}
	return seen;
}

/* ---- events ------------------------------------------------------------------------------------ */

static int is_over(int fd)
{
	char byte;

	/* the plugin and the launcher send nothing that we wait for here: readable means closed */
	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* Services that want to be stopped in good order need the image until they are: the watching thread
 * waits for that, and ends the process. */
static void end_session(const struct guard *guard)
{
	if (atomic_load(&guard->attendant) == 0)
		_exit(0);
	for (;;)
		pause();
}

static int poll_session(struct guard *guard, int milliseconds)
{
	struct pollfd fds[] = {
		{ .fd = guard->watch, .events = POLLIN }, { .fd = guard->life, .events = POLLIN },
		{ .fd = guard->control, .events = POLLIN }, { .fd = guard->init, .events = POLLIN },
		{ .fd = guard->signals, .events = POLLIN },
	};

	if (poll(fds, sizeof fds / sizeof fds[0], milliseconds) < 0)
		return errno == EINTR ? 0 : guard_fail(guard, "cannot wait for events");
	/* slurmstepd is gone, the step is over, or the launcher gave up: this is the end of it all */
	if ((fds[0].revents & POLLIN) != 0 || (fds[1].revents != 0 && is_over(guard->life)) ||
	    (fds[2].revents != 0 && is_over(guard->control)))
		end_session(guard);
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

/* ---- reports ----------------------------------------------------------------------------------- */

/* What OCI hooks printed on stderr: crun writes it to this file of the session's directory, in which
 * we stand (container_engine/launch/ocihooks.py). NULL without such a file. */
static char *hooks_said(void)
{
	size_t size = 0;
	CE_AUTO_FD file = open("hooks.err", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char *said = file >= 0 ? ce_read_all(file, 1 << 20, &size) : NULL;

	if (size > MAX_SAID)
		memmove(said, said + size - MAX_SAID, MAX_SAID + 1);
	return said;
}

static void report_failure(struct guard *guard)
{
	size_t size = 0;
	CE_AUTO_FREE char *said = hooks_said();
	CE_AUTO_FREE char *log = ce_read_file_at(guard->log, 1 << 20, &size);
	CE_AUTO_FREE char *report = NULL;
	const char *tail = log != NULL && size > MAX_REPORT ? log + size - MAX_REPORT : log;
	int length = asprintf(&report, "E%s\n%d\n%s\n%s%s%s", guard->stage, guard->stage_errno,
			      ce_error_text(&guard->err), tail != NULL ? tail : "",
			      said != NULL ? "\f" : "", said != NULL ? said : "");

	if (length > 0)
		(void)ce_send(guard->control, report, (size_t)length, NULL, 0);
}

static int open_in(struct guard *guard, int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	return fd >= 0 ? fd : guard_fail(guard, "cannot open %s of the container's init", name);
}

static int copy_environment(struct guard *guard, int process_dir)
{
	size_t size = 0;
	CE_AUTO_FD source = open_in(guard, process_dir, "environ");
	if (source < 0)
		return -1;
	CE_AUTO_FREE char *text = ce_read_all(source, MAX_SPECIFICATION, &size);
	if (text == NULL)
		return guard_fail(guard, "cannot read the environment of the container's init");
	int copy = ce_memory_file("ce-environ", text, size);
	return copy >= 0 ? copy : guard_fail(guard, "cannot keep the container's environment");
}

void guard_stamp(struct guard *guard, const char *name)
{
	struct timespec now;

	if (guard->stamps_size == 0)
		guard->stamps[guard->stamps_size++] = 'R';
	if (guard->last_stamp != NULL && strcmp(guard->last_stamp, name) == 0)
		return;
	size_t room = sizeof guard->stamps - guard->stamps_size;
	clock_gettime(CLOCK_MONOTONIC, &now);
	int n = snprintf(guard->stamps + guard->stamps_size, room, "%s %lld\n", name,
			 (long long)now.tv_sec * 1000000000 + now.tv_nsec);
	/* a line that does not fit is left out whole */
	if (n > 0 && (size_t)n < room)
		guard->stamps_size += (size_t)n;
	guard->last_stamp = name;
}

/* The stamps, and behind a NUL the end of what our children have printed: an image's entrypoint is
 * among them if the launcher wants to hear it. */
static int send_ready(struct guard *guard, const int fds[], size_t count)
{
	size_t size = 0;
	CE_AUTO_FREE char *log = ce_read_file_at(guard->log, 1 << 20, &size);
	size_t kept = log == NULL ? 0 : size > MAX_PRINTED ? MAX_PRINTED : size;
	CE_AUTO_FREE char *report = malloc(guard->stamps_size + 1 + kept);

	if (report == NULL)
		return -1;
	memcpy(report, guard->stamps, guard->stamps_size);
	report[guard->stamps_size] = '\0';
	if (kept > 0)
		memcpy(report + guard->stamps_size + 1, log + size - kept, kept);
	return ce_send(guard->control, report, guard->stamps_size + 1 + kept, fds, count);
}

int guard_report_ready(struct guard *guard, int process_dir)
{
	CE_AUTO_FD user_ns = open_in(guard, process_dir, "ns/user");
	if (user_ns < 0)
		return -1;
	CE_AUTO_FD mount_ns = open_in(guard, process_dir, "ns/mnt");
	if (mount_ns < 0)
		return -1;
	CE_AUTO_FD environment = copy_environment(guard, process_dir);
	if (environment < 0)
		return -1;
	CE_AUTO_FD self = ce_pidfd_open(getpid());
	if (self < 0)
		return guard_fail(guard, "cannot open a descriptor of the guard");
	int fds[] = { user_ns, mount_ns, environment, self };
	guard_stamp(guard, "ready");
	if (send_ready(guard, fds, 4) < 0)
		return guard_fail(guard, "cannot answer the launcher");
	return 0;
}

/* The launcher says "go on" once its own answer has reached the plugin. Whatever ends it before that
 * closes the socket, and poll_session ends the session. */
static int wait_for_launcher(struct guard *guard)
{
	int fds[CE_MAX_FDS];
	char word;

	for (;;) {
		ssize_t n = ce_receive(guard->control, MSG_DONTWAIT, &word, 1, fds);
		if (n == 1) {
			if (fds[0] > 0)
				atomic_store(&guard->attendant, fds[0]);
			ce_close_fd(&guard->control);
			return 0;
		}
		if (guard_events(guard, -1) < 0)
			return -1;
	}
}

/* ---- life -------------------------------------------------------------------------------------- */

static void serve(struct guard *guard)
{
	while (guard_events(guard, -1) == 0)
		;
	const char *cause = ce_error_text(&guard->err);
	if (guard->life >= 0)
		(void)ce_send(guard->life, cause, strlen(cause), NULL, 0);
}

/* Tells ce-attend that the session ends, and waits until it closes its end: the services are stopped. */
static void stop_services(int attendant)
{
	if (attendant == 0)
		return;
	shutdown(attendant, SHUT_WR);
	ce_wait_readable(attendant, ce_now_ms() + STOP_MS);
}

/* A system call on the image waits for the image's server, which may itself wait for a dead file server
 * or be stopped, and the thread that makes the call hears of nothing else meanwhile: this one does.
 * Once the server has the request not even SIGKILL ends that wait, so the server goes first. */
static void *watch_for_end(void *context)
{
	const struct guard *guard = context;
	struct pollfd fds[] = { { .fd = guard->watch, .events = POLLIN }, { .fd = guard->life } };

	while (poll(fds, sizeof fds / sizeof fds[0], -1) < 0 && errno == EINTR)
		;
	stop_services(atomic_load(&guard->attendant));
	/* everybody in our PID namespace but ourselves */
	kill(-1, SIGKILL);
	_exit(0);
}

static int start_watching(struct guard *guard)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, watch_for_end, guard);
	return errno == 0 ? 0 : guard_fail(guard, "cannot start a thread");
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
	if (guard_run_operations(guard, text, size) < 0)
		return -1;
	/* guard->session and friends point into `text`: nothing below may use them */
	return wait_for_launcher(guard);
}

static int write_map(struct guard *guard, const char *path, const char *text)
{
	CE_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || ce_write_all(fd, text, strlen(text)) < 0)
		return guard_fail(guard, "cannot write %s", path);
	return 0;
}

static int make_namespaces(struct guard *guard)
{
	unsigned uid = geteuid(), gid = getegid();
	char map[64];

	guard->stage = "namespaces";
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
		return guard_fail(guard, "cannot make a user namespace");
	/* One id is all that is mapped: needs no /etc/subuid and no setuid helper. Without denying
	 * setgroups first the kernel lets nobody but root write a gid map. */
	if (write_map(guard, "/proc/self/setgroups", "deny") < 0)
		return -1;
	snprintf(map, sizeof map, "0 %u 1", uid);
	if (write_map(guard, "/proc/self/uid_map", map) < 0)
		return -1;
	snprintf(map, sizeof map, "0 %u 1", gid);
	return write_map(guard, "/proc/self/gid_map", map);
}

static int descriptor(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < 0 || value > INT_MAX)
		return -1;
	if (fcntl((int)value, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return (int)value;
}

static int run(struct guard *guard, int specification)
{
	/* Ctrl-C at the terminal of `ce run` is for the command, not for what holds its container. */
	setsid();
	umask(022);
	if (make_namespaces(guard) < 0) {
		report_failure(guard);
		return CE_EXIT_ENGINE;
	}
	pid_t pid = fork();
	if (pid != 0)
		return pid > 0 ? 0 : CE_EXIT_ENGINE;
	if (process_one(guard, specification) < 0) {
		report_failure(guard);
		return CE_EXIT_ENGINE;
	}
	serve(guard);
	return 0;
}

int main(int argc, char **argv)
{
	struct guard guard = { .signals = -1, .log = -1, .init = -1, .stage = "start",
			       .err = CE_ERROR_INIT };

	if (argc != 5) {
		fprintf(stderr, "ce-guard: started by the container engine's launcher only\n");
		return CE_EXIT_ENGINE;
	}
	guard.control = descriptor(argv[1]);
	guard.watch = descriptor(argv[2]);
	guard.life = descriptor(argv[3]);
	int specification = descriptor(argv[4]);
	if (guard.control < 0 || guard.watch < 0 || specification < 0)
		return CE_EXIT_ENGINE;
	return run(&guard, specification);
}
