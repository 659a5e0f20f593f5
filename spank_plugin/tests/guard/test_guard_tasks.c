/* A container for each task; a process that sleeps is its first process. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "common/outcome.h"
#include "guard/guard.h"
#include "guard/guard_ops.h"
#include "harness.h"

/* where this test's containers have the socket for tasks: they have no other namespaces of their own */
enum { TASKS = CE_REPORTED_UNSHARED };

static struct guard guard = GUARD_INIT;

/* Print an operation with its arguments, as container_engine/node/container/specification.py encodes it. */
static void put(FILE *stream, int count, const char *const words[])
{
	fprintf(stream, "%s%c%d%c", words[0], 0, count - 1, 0);
	for (int i = 1; i < count; i++)
		fprintf(stream, "%s%c", words[i], 0);
}

#define PUT(stream, ...)                                                                      \
	put(stream, (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)), \
	    (const char *const[]){ __VA_ARGS__ })

/* Be a guard whose containers are made by `script`, and print `note` first; never return. */
static void be_guard(int control, const char *script)
{
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	sigset_t child;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
	    mkdir("own", 0755) < 0)
		_exit(9);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	guard.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	guard.log = ce_memory_file("log", "", 0);
	guard.control = control;
	CHECK(stream != NULL);
	PUT(stream, "each", "1m", test_path(test_directory(), "own"));
	PUT(stream, "note", "of hooks");
	PUT(stream, "crun", "/bin/sh", "-c", script);
	PUT(stream, "container", "init.pid", "sleep");
	fclose(stream);
	if (guard_run_operations(&guard, text, size) < 0)
		_exit(8);
	while (guard_events(&guard, -1) == 0)
		;
	const char *cause = ce_error_text(&guard.err);
	(void)ce_send(guard.control, cause, strlen(cause), NULL, 0);
	_exit(0);
}

static pid_t start(int *control, const char *script)
{
	int ends[2];

	test_needs_root();
	CHECK_INT(chdir(test_directory()), 0);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		be_guard(ends[1], script);
	}
	close(ends[1]);
	*control = ends[0];
	return pid;
}

#define SLEEPS "sleep 300 >/dev/null 2>&1 & echo $! >init.pid"

static ssize_t next(int socket, char text[4096], int fds[CE_MAX_FDS])
{
	CHECK(ce_wait_readable(socket, ce_now_ms() + 20000));
	ssize_t n = ce_receive(socket, 0, text, 4095, fds);
	text[n > 0 ? n : 0] = '\0';
	return n;
}

/* Read the note of the hooks and the report of the first container; return the socket for tasks. */
static int await_first(int control)
{
	char text[4096];
	int fds[CE_MAX_FDS];

	next(control, text, fds);
	CHECK_TEXT(text, "Nof hooks");
	next(control, text, fds);
	CHECK_INT(text[0], CE_REPORT_OF_TASKS);
	CHECK(fds[TASKS] >= 0 && fds[TASKS + 1] < 0);
	int tasks = fds[TASKS];
	fds[TASKS] = -1;
	ce_close_all(fds);
	return tasks;
}

/* Ask for a container for a process; return the inode of its mount namespace. */
static ino_t ask(int tasks, pid_t task)
{
	int ends[2], fds[CE_MAX_FDS];
	char text[4096];
	struct stat found;
	CE_AUTO_FD pidfd = ce_pidfd_open(task);

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	CE_AUTO_FD outcome = ce_memory_file("outcome", "", 0);
	const int sent[] = { [CE_ASKED_ANSWER] = ends[1], [CE_ASKED_TASK] = pidfd,
			     [CE_ASKED_OUTCOME] = outcome };
	CHECK_INT(ce_send(tasks, CE_ASK, 1, sent, CE_ASKED_COUNT), 0);
	close(ends[1]);
	do {
		CHECK(next(ends[0], text, fds) > 0);
	} while (text[0] == CE_REPORT_NOTE);
	CHECK_INT(text[0], CE_REPORT_OF_NODE);
	CHECK(fds[CE_REPORTED_UNSHARED - 1] >= 0 && fds[CE_REPORTED_UNSHARED] < 0);
	CHECK_INT(fstat(fds[CE_REPORTED_MOUNT_NS], &found), 0);
	ce_close_all(fds);
	close(ends[0]);
	return found.st_ino;
}

static pid_t start_task(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

/* Return how many processes have this mount namespace. */
static int count_in(ino_t mount_ns)
{
	char command[128];
	int count = -1;

	snprintf(command, sizeof command, "ls -L -i /proc/[0-9]*/ns/mnt 2>/dev/null | grep -c '^ *%lu '",
		 (unsigned long)mount_ns);
	FILE *stream = popen(command, "r");
	CHECK(stream != NULL && fscanf(stream, "%d", &count) == 1);
	pclose(stream);
	return count;
}

static void end_task(pid_t task, ino_t mount_ns)
{
	kill(task, SIGKILL);
	waitpid(task, NULL, 0);
	for (int64_t limit = ce_now_ms() + 20000; count_in(mount_ns) > 0;)
		CHECK(ce_now_ms() < limit && sched_yield() == 0);
}

TEST("each task gets a container of its own, which ends with it")
{
	int control;
	pid_t pid = start(&control, SLEEPS), one, other;
	CE_AUTO_FD tasks = await_first(control);

	one = start_task();
	other = start_task();
	ino_t of_one = ask(tasks, one), of_other = ask(tasks, other);
	CHECK(of_one != of_other);
	/* the first process, and the task guard */
	CHECK_INT(count_in(of_one), 2);
	CHECK_INT(count_in(of_other), 2);
	end_task(one, of_one);
	CHECK_INT(count_in(of_other), 2);
	end_task(other, of_other);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(control);
}

/* Kill the processes of a mount namespace that grep, with these options, finds by their names. */
static void kill_in(ino_t mount_ns, const char *options)
{
	char command[512];

	snprintf(command, sizeof command,
		 "for p in $(ls -L -i /proc/[0-9]*/ns/mnt 2>/dev/null | sed -n 's#^ *%lu /proc/##p' "
		 "| cut -d/ -f1); do grep %s sleep /proc/$p/comm && kill -9 $p; done; :",
		 (unsigned long)mount_ns, options);
	CHECK_INT(system(command), 0);
}

/* Give a task a container, kill there what grep finds, and check the cause that is reported. */
static void check_cause(const char *options, const char *cause)
{
	int control, fds[CE_MAX_FDS];
	char text[4096];
	pid_t pid = start(&control, SLEEPS), task = start_task();
	CE_AUTO_FD tasks = await_first(control);

	ino_t mount_ns = ask(tasks, task);
	kill_in(mount_ns, options);
	next(control, text, fds);
	CHECK_TEXT(text, cause);
	waitpid(pid, NULL, 0);
	/* a guard ends with its PID namespace, which this one lacks */
	kill_in(mount_ns, "-q");
	kill(task, SIGKILL);
	waitpid(task, NULL, 0);
	close(control);
}

TEST("a container that ends before its task is reported with the cause")
{
	check_cause("-q", "of a task's container: the container's init process ended");
}

TEST("a task guard that is killed ends all containers, since nobody keeps the limits of its own")
{
	check_cause("-qv", "the process that guards a task's container was killed by signal 9");
}

TEST("the failure of the first container is reported to the launcher like any other")
{
	int control, fds[CE_MAX_FDS], status;
	char text[4096];
	pid_t pid = start(&control, "echo it said so >&2; exit 3");

	next(control, text, fds);
	CHECK_TEXT(text, "Nof hooks");
	next(control, text, fds);
	CHECK_CONTAINS(text, "Ecrun\n");
	CHECK_CONTAINS(text, "it said so");
	CHECK_INT(next(control, text, fds), 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	close(control);
}

TEST("a task whose container cannot be made gets the error, and the others get their containers")
{
	int control, ends[2], fds[CE_MAX_FDS];
	char text[4096];
	pid_t pid = start(&control, "[ ! -e ../second ] || { echo no more >&2; exit 3; }; " SLEEPS),
	      task = start_task();
	CE_AUTO_FD tasks = await_first(control);
	CE_AUTO_FD pidfd = ce_pidfd_open(task);

	ino_t mount_ns = ask(tasks, task);
	test_file(test_directory(), "second", "", 0644);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	CE_AUTO_FD outcome = ce_memory_file("outcome", "", 0);
	const int sent[] = { [CE_ASKED_ANSWER] = ends[1], [CE_ASKED_TASK] = pidfd,
			     [CE_ASKED_OUTCOME] = outcome };
	CHECK_INT(ce_send(tasks, CE_ASK, 1, sent, CE_ASKED_COUNT), 0);
	close(ends[1]);
	next(ends[0], text, fds);
	next(ends[0], text, fds);
	CHECK_CONTAINS(text, "Ecrun\n");
	CHECK_CONTAINS(text, "no more");
	CHECK_INT(count_in(mount_ns), 2);
	end_task(task, mount_ns);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ends[0]);
	close(control);
}
