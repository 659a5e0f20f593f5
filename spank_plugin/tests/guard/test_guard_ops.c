#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/guard.h"
#include "guard/stage.h"
#include "harness.h"

/* without the NUL that C adds */
#define RUN_CUT(text) run(text, sizeof(text) - 1)

static void refused(const char *why)
{
	CHECK_TEXT(ce_error_text(&guard.err), why);
	CHECK_INT(guard.stage_errno, EINVAL);
	ce_error_clear(&guard.err);
}

/* ---- the format -------------------------------------------------------------------------------- */

TEST("operations run in their order")
{
	CHECK_INT(RUN("environment\0002\0CE_A\0001\0environment\0002\0CE_A\0002\n\"="), 0);
	CHECK_TEXT(getenv("CE_A"), "2\n\"=");
	CHECK_TEXT(guard.stage, "environment");
}

TEST("the first failure is the cause that is reported")
{
	CHECK_INT(guard_fail(&guard, "first"), -1);
	CHECK_INT(guard_fail(&guard, "second"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "first");
	ce_error_clear(&guard.err);
}

TEST("an empty specification does nothing")
{
	CHECK_INT(run("", 0), 0);
}

TEST("empty arguments are arguments")
{
	CHECK_INT(RUN("environment\0002\0CE_EMPTY\0"), 0);
	CHECK_TEXT(getenv("CE_EMPTY"), "");
}

TEST("an operation that is not known is refused")
{
	CHECK_INT(RUN("environments\0002\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("\0002\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("ENVIRONMENT\0002\0A\0001"), -1);
	refused("bad operation in the specification");
}

TEST("a count that is negative, too small, huge or no number is refused")
{
	CHECK_INT(RUN("environment\0-1\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment\0001\0A"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment\0\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment\0x\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment\0001000000\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment\0009223372036854775807\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment\00099999999999999999999999\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment\0-9223372036854775808\0A\0001"), -1);
	refused("bad operation in the specification");
	CHECK(getenv("A") == NULL);
}

TEST("a count with other characters after it is refused")
{
	CHECK_INT(RUN("environment\0002x\0CE_B\0001"), -1);
	refused("bad operation in the specification");
	CHECK(getenv("CE_B") == NULL);
}

TEST("a specification that is cut short runs nothing of its last operation")
{
	CHECK_INT(RUN("environment\0003\0CE_C\0001"), -1);
	refused("specification cut short");
	CHECK_INT(RUN_CUT("environment\0002\0CE_C\0001"), -1);
	refused("specification cut short");
	CHECK_INT(RUN_CUT("environment\0002\0CE_C"), -1);
	refused("specification cut short");
	CHECK_INT(RUN("environment\0002"), -1);
	refused("specification cut short");
	CHECK_INT(RUN_CUT("environment\0002"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("environment"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN_CUT("environment"), -1);
	refused("bad operation in the specification");
	CHECK(getenv("CE_C") == NULL);
}

TEST("the operations before a bad one have run, those after it have not")
{
	CHECK_INT(RUN("environment\0002\0CE_D\0001\0bad\0000\0environment\0002\0CE_E\0001"), -1);
	refused("bad operation in the specification");
	CHECK_TEXT(getenv("CE_D"), "1");
	CHECK(getenv("CE_E") == NULL);
}

/* ---- operations -------------------------------------------------------------------------------- */

TEST("directories and files are made once and never over something")
{
	struct stat st;

	CHECK_INT(chdir(test_directory()), 0);
	umask(022);
	CHECK_INT(RUN("dir\0001\0new dir\0file\0002\0new dir/f\0text\n"), 0);
	CHECK_INT(stat("new dir/f", &st), 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	CHECK_INT(st.st_size, 5);
	CHECK_INT(RUN("dir\0001\0new dir"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "cannot make 'new dir'");
	CHECK_INT(guard.stage_errno, EEXIST);
	CHECK_TEXT(guard.stage, "dir");
	ce_error_clear(&guard.err);
	CHECK_INT(symlink("/etc/passwd", "link"), 0);
	CHECK_INT(RUN("file\0002\0link\0text"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "cannot write 'link'");
	CHECK_INT(guard.stage_errno, EEXIST);
	ce_error_clear(&guard.err);
}

TEST("a program's exit code and what it printed are kept for the report")
{
	size_t size;

	set_up_guard();
	CHECK_INT(RUN("podman\0003\0/bin/sh\0-c\0exit 0"), 0);
	CHECK_INT(RUN("podman\0003\0/bin/sh\0-c\0echo said; echo why >&2; exit 3"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "Podman ended with exit code 3");
	CE_AUTO_FREE char *log = ce_read_file_at(guard.log, 1000, &size);
	CHECK_TEXT(log, "said\nwhy\n");
	ce_error_clear(&guard.err);
}

TEST("crun is named where it creates the container")
{
	set_up_guard();
	/* the working directory is the session's, in which a link to crun's copy is left */
	CHECK_INT(chdir(test_directory()), 0);
	CHECK_INT(RUN("crun\0003\0/bin/sh\0-c\0exit 3"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "crun ended with exit code 3");
	ce_error_clear(&guard.err);
}

TEST("a program that was killed is told apart from one that failed")
{
	set_up_guard();
	CHECK_INT(RUN("podman\0003\0/bin/sh\0-c\0kill -9 $$"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "Podman was killed by signal 9");
	ce_error_clear(&guard.err);
}

TEST("a program that is not installed is reported as such, and is named in the log")
{
	size_t size;

	set_up_guard();
	setenv("PATH", "/usr/bin:/bin", 1);
	CHECK_INT(RUN("podman\0001\0no-such-program"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "Podman cannot be started");
	CE_AUTO_FREE char *log = ce_read_file_at(guard.log, 1000, &size);
	CHECK_TEXT(log, "no-such-program: No such file or directory\n");
	ce_error_clear(&guard.err);
}

TEST("a program gets no descriptor of ours, /dev/null as stdin and no blocked signals")
{
	size_t size;

	set_up_guard();
	CHECK_INT(RUN("podman\0003\0/bin/sh\0-c\0readlink /proc/self/fd/0; "
		      "ls /proc/self/fd | wc -w; grep SigBlk /proc/self/status"),
		  0);
	CE_AUTO_FREE char *log = ce_read_file_at(guard.log, 1000, &size);
	/* the descriptors 0, 1, 2 and the one of ls itself */
	CHECK_TEXT(log, "/dev/null\n4\nSigBlk:\t0000000000000000\n");
}

TEST("a container without a usable pid file is refused")
{
	static const char *const bad[] = { "", "x", "0", "1", "-5", "99999999999999999999" };

	CHECK_INT(chdir(test_directory()), 0);
	CHECK_INT(RUN("container\0002\0missing\0name"), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "the process ID of the container's init is not known");
	ce_error_clear(&guard.err);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		test_file(test_directory(), "pid", bad[i], 0644);
		CHECK_INT(RUN("container\0002\0pid\0name"), -1);
		CHECK_CONTAINS(ce_error_text(&guard.err), "container's init");
		ce_error_clear(&guard.err);
	}
}

TEST("a container whose init has ended already is refused")
{
	char specification[] = "container\0002\0pid\0name";

	CHECK_INT(chdir(test_directory()), 0);
	/* larger than any pid */
	test_file(test_directory(), "pid", "4194305\n", 0644);
	CHECK_INT(run(specification, sizeof specification), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "the container's init process ended");
	ce_error_clear(&guard.err);
}

TEST("a container that runs is reported with its namespaces and environment")
{
	int pair[2], fds[CE_MAX_FDS];
	char pid_text[16], data[256] = "";
	size_t size;

	set_up_guard();
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	guard.control = pair[0];
	CHECK_INT(chdir(test_directory()), 0);
	setenv("CE_KEY", "value\n=", 1);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		execlp("sleep", "sleep", "50", (char *)NULL);
		_exit(1);
	}
	snprintf(pid_text, sizeof pid_text, "%d\n", (int)pid);
	test_file(test_directory(), "pid", pid_text, 0644);
	CHECK_INT(RUN("container\0002\0pid\0sleep"), 0);
	CHECK(ce_receive(pair[1], 0, data, sizeof data - 1, fds) > 0);
	/* the times: when each operation began */
	CHECK_INT(strncmp(data, "Rcontainer ", strlen("Rcontainer ")), 0);
	CHECK_CONTAINS(data, "\nready ");
	CHECK(fds[CE_REPORTED_GUARD] >= 0);
	CE_AUTO_FREE char *environment = ce_read_file_at(fds[CE_REPORTED_ENVIRONMENT], 1 << 20, &size);
	CHECK(environment != NULL && memmem(environment, size, "CE_KEY=value\n=", 15) != NULL);
	kill(pid, SIGKILL);
}

TEST("a container that dies while it starts ends the start")
{
	char pid_text[16];

	set_up_guard();
	CHECK_INT(chdir(test_directory()), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		usleep(100000);
		_exit(1);
	}
	snprintf(pid_text, sizeof pid_text, "%d\n", (int)pid);
	test_file(test_directory(), "pid", pid_text, 0644);
	CHECK_INT(RUN("container\0002\0pid\0never"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "the container's init process ended");
	ce_error_clear(&guard.err);
}

/* ---- the end ----------------------------------------------------------------------------------- */

static void wait_for_ever(void)
{
	for (;;) {
		if (guard_events(&guard, -1) < 0)
			_exit(3);
	}
}

/* Return the guard's exit status after the peer of this socket of the guard has been closed. */
static int ends_after(int *watched)
{
	int pair[2];

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	set_up_guard();
	*watched = pair[0];
	close(pair[1]);
	int status = test_in_child(wait_for_ever);
	*watched = -1;
	return status;
}

TEST("the guard ends when the step is over or the launcher gives up")
{
	CHECK_INT(ends_after(&guard.life), 0);
	CHECK_INT(ends_after(&guard.control), 0);
}

TEST("the guard ends when the process that it serves does")
{
	set_up_guard();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		_exit(0);
	guard.watch = ce_pidfd_open(pid);
	CHECK_INT(test_in_child(wait_for_ever), 0);
}

TEST("the death of an image server is noticed with its cause")
{
	set_up_guard();
	pid_t pid = fork();
	if (pid == 0)
		raise(SIGKILL);
	guard.fuse[guard.fuse_count++] = pid;
	for (int i = 0; i < 500 && guard_events(&guard, 10) == 0; i++)
		;
	CHECK_CONTAINS(ce_error_text(&guard.err), "(ce-image) was killed by signal 9");
	ce_error_clear(&guard.err);
}
