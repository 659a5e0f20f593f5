#define _GNU_SOURCE
#include "common/kill_container.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

static void enter_mount_namespace(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		_exit(1);
}

static int entered;

/* Become a process of the same container that is in a session and group of its own. */
static void join_mount_namespace(void)
{
	if (setns(entered, CLONE_NEWNS) < 0 || setsid() < 0)
		_exit(1);
}

static int namespace_of(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static int killed(pid_t pid)
{
	int status;

	CHECK_INT(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST("the caller's own mount namespace is never killed in")
{
	pid_t neighbour = test_idle_process(NULL);
	CE_AUTO_FD own = namespace_of(getpid());
	int status;

	CHECK_INT(ce_kill_container(own, 0), 0);
	CHECK_INT(waitpid(neighbour, &status, WNOHANG), 0);
	kill(neighbour, SIGTERM);
	CHECK(!killed(neighbour));
}

TEST("a descriptor that is no namespace of any process kills nothing")
{
	CE_AUTO_FD null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK_INT(ce_kill_container(null, 0), 0);
	CHECK_INT(ce_kill_container(-1, 0), 0);
}

TEST("all processes of another mount namespace are killed, those outside it live")
{
	test_needs_root();
	pid_t container = test_idle_process(enter_mount_namespace), outside = test_idle_process(NULL),
	      other = test_idle_process(enter_mount_namespace);
	CE_AUTO_FD namespace = namespace_of(container);
	CE_AUTO_FD others = namespace_of(other);
	int status;

	entered = namespace;
	pid_t mate = test_idle_process(join_mount_namespace);
	/* a process that is still ending may be counted twice */
	CHECK(ce_kill_container(namespace, 0) >= 2);
	CHECK(killed(container));
	CHECK(killed(mate));
	CHECK_INT(waitpid(outside, &status, WNOHANG), 0);
	CHECK_INT(waitpid(other, &status, WNOHANG), 0);
	kill(outside, SIGTERM);
	CHECK(!killed(outside));
	CHECK(ce_kill_container(others, 0) >= 1);
	CHECK(killed(other));
}

static void enter_as_first(void)
{
	enter_mount_namespace();
	prctl(PR_SET_NAME, ".ce-init");
}

TEST("the first process of a container stays if it is spared")
{
	test_needs_root();
	pid_t first = test_idle_process(enter_as_first);
	CE_AUTO_FD namespace = namespace_of(first);
	int status;

	entered = namespace;
	pid_t mate = test_idle_process(join_mount_namespace);
	CHECK(ce_kill_container(namespace, 1) >= 1);
	CHECK(killed(mate));
	CHECK_INT(waitpid(first, &status, WNOHANG), 0);
	CHECK(ce_kill_container(namespace, 0) >= 1);
	CHECK(killed(first));
}
