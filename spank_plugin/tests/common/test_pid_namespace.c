#define _GNU_SOURCE
#include "common/join.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/io.h"
#include "harness.h"

/* what a test runs in the PID namespace */
typedef void program(void);

static int report[2];

static void tell(void)
{
	if (write(report[1], "", 1) != 1)
		_exit(98);
}

static void die_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Start a process that represents a program in a PID namespace of its own (ce_enter_pids), and wait until the
 * program runs. */
static pid_t stand(program *run)
{
	char byte;

	CHECK_INT(pipe2(report, O_CLOEXEC), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct ce_error err = CE_ERROR_INIT;
		struct ce_container container = CE_CONTAINER_INIT;
		if (unshare(CLONE_NEWPID) < 0 || test_idle_process(die_with_parent) < 0 ||
		    ce_enter_pids(&container, 1, &err) < 0)
			_exit(99);
		run();
		_exit(0);
	}
	close(report[1]);
	CHECK_INT(read(report[0], &byte, 1), 1);
	return pid;
}

/* Return the program's pid on the host. */
static pid_t program_of(pid_t pid)
{
	char path[64], *first;
	size_t size;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	CE_AUTO_FREE char *text = ce_read_all(fd, 4096, &size);
	CHECK(text != NULL);
	(void)strtol(text, &first, 10);
	return (pid_t)strtol(first, NULL, 10);
}

static int end_of(pid_t pid)
{
	int status;

	CHECK_INT(waitpid(pid, &status, 0), pid);
	close(report[0]);
	return status;
}

static void exit_with_its_id(void)
{
	tell();
	_exit(getpid());
}

static void die(void)
{
	tell();
	(void)signal(SIGUSR1, SIG_DFL);
	raise(SIGUSR1);
}

static void end_orderly(int signal_number)
{
	_exit(signal_number);
}

static void await_signal(void)
{
	(void)signal(SIGTERM, end_orderly);
	tell();
	for (;;)
		pause();
}

static void end_in_its_own_group(void)
{
	tell();
	_exit(getpgrp() == getpid() ? 11 : 12);
}

TEST("a program in a PID namespace has a pid of it, and the process outside ends as the program does")
{
	test_needs_root();
	int status = end_of(stand(exit_with_its_id));
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 2);
}

TEST("the terminal's signals for the process outside do not reach a program in a PID namespace")
{
	test_needs_root();
	CHECK_INT(WEXITSTATUS(end_of(stand(end_in_its_own_group))), 11);
}

TEST("the process outside is killed by the signal that killed its program")
{
	test_needs_root();
	int status = end_of(stand(die));
	CHECK(WIFSIGNALED(status));
	CHECK_INT(WTERMSIG(status), SIGUSR1);
}

TEST("the process outside passes signals on to its program")
{
	test_needs_root();
	pid_t pid = stand(await_signal);
	CHECK_INT(kill(pid, SIGTERM), 0);
	CHECK_INT(WEXITSTATUS(end_of(pid)), SIGTERM);
}

TEST("a program in a PID namespace is killed with the process outside")
{
	test_needs_root();
	pid_t pid = stand(await_signal);
	CE_AUTO_FD program_fd = ce_pidfd_open(program_of(pid));
	CHECK(program_fd >= 0);
	CHECK_INT(kill(pid, SIGKILL), 0);
	CHECK_INT(WTERMSIG(end_of(pid)), SIGKILL);
	CHECK(test_ends(program_fd));
}

static void stop_and_go_on(void)
{
	tell();
	raise(SIGSTOP);
	_exit(13);
}

TEST("the process outside stops and continues with its program")
{
	int status;

	test_needs_root();
	pid_t pid = stand(stop_and_go_on);
	CHECK_INT(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
	CHECK_INT(kill(pid, SIGCONT), 0);
	CHECK_INT(WEXITSTATUS(end_of(pid)), 13);
}

TEST("namespaces of processes are told from others")
{
	CE_AUTO_FD pids = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	CE_AUTO_FD network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CE_AUTO_FD file = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK(ce_is_pid_namespace(pids));
	CHECK(!ce_is_pid_namespace(network));
	CHECK(!ce_is_pid_namespace(file));
}
