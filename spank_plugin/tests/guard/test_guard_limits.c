/* Limits of a container, whose first process sleeps in a PID and a mount namespace of its own. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "common/outcome.h"
#include "guard/guard.h"
#include "guard/guard_ops.h"
#include "harness.h"

enum { MIB = 1 << 20 };

static struct guard guard = GUARD_INIT;
static struct ce_outcome outcome;
static pid_t first;

static void be_container(void)
{
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL), 0);
	CHECK_INT(mount("proc", "/proc", "proc", 0, NULL), 0);
}

static void take_memory(void)
{
	char *memory = malloc(40 * MIB);

	be_container();
	CHECK(memory != NULL);
	explicit_bzero(memory, 40 * MIB);
}

/* Have a child that starts a program as posix_spawn does, which takes long to begin. */
static void spawn(void)
{
	take_memory();
	if (fork() == 0) {
		close_range(3, ~0U, 0);
		if (vfork() == 0) {
			poll(NULL, 0, 60000);
			_exit(0);
		}
		_exit(0);
	}
}

static void fill_tmpfs(void)
{
	static char block[MIB];

	be_container();
	/* with a name that mountinfo escapes */
	CHECK_INT(mkdir("a b", 0755), 0);
	CHECK_INT(mount("x", "a b", "tmpfs", 0, NULL), 0);
	CE_AUTO_FD file = open("a b/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	for (int i = 0; i < 30; i++)
		CHECK_INT(ce_write_all(file, block, sizeof block), 0);
}

static void start_child(void)
{
	be_container();
	if (fork() == 0) {
		close_range(3, ~0U, 0);
		for (;;)
			pause();
	}
}

static void limit(int memory, int pids, int time_ms, int file)
{
	char words[4][16], *args[] = { words[0], words[1], words[2], words[3], NULL };
	const int numbers[] = { memory, pids, time_ms, file };

	for (int i = 0; i < 4; i++)
		snprintf(words[i], sizeof words[i], "%d", numbers[i]);
	CHECK_INT(guard_op_limits(&guard, args), 0);
	CHECK_INT(guard.limits.outcome, file);
}

/* Start a container that does this first, and look at it until it reaches a limit. */
static void look(test_fn *prepare, int memory, int pids, int time_ms)
{
	char path[64];

	test_needs_root();
	CE_AUTO_FD own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	CHECK_INT(unshare(CLONE_NEWNS | CLONE_NEWPID), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL), 0);
	CHECK_INT(mount("x", test_directory(), "tmpfs", 0, NULL), 0);
	CHECK_INT(chdir(test_directory()), 0);
	first = test_idle_process(prepare);
	/* what looks for leaks at the end is a child, too */
	CHECK_INT(setns(own, CLONE_NEWPID), 0);
	int file = ce_memory_file("outcome", "", 0);
	limit(memory, pids, time_ms, file);
	guard.watch = ce_pidfd_open(getpid());
	guard.init = ce_pidfd_open(first);
	snprintf(path, sizeof path, "/proc/%d", (int)first);
	CE_AUTO_FD process_dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(guard_limits_begin(&guard, process_dir, first), 0);
	ce_outcome_read(file, &outcome);
	CHECK_INT((int)outcome.is_watched, 1);
	CHECK_INT(guard_wait_for_end(&guard), -1);
	CHECK(guard.limits.is_reached);
	guard_limits_note_end(&guard.limits, "the init process ended");
	ce_outcome_read(file, &outcome);
	CHECK(ce_is_limit(ce_error_text(&guard.err)));
	struct rlimit found;
	CHECK_INT(prlimit(first, RLIMIT_NPROC, NULL, &found), 0);
	CHECK(pids == 0 || (found.rlim_max == (rlim_t)pids + 2 && found.rlim_cur == (rlim_t)pids + 2));
	CHECK_INT(kill(first, SIGKILL), 0);
	CHECK_INT(waitpid(first, NULL, 0), first);
}

TEST("a container with more memory than its limit is to end")
{
	look(take_memory, 20 * MIB, 0, 60000);
	CHECK_CONTAINS(outcome.text, "more than the 20 MiB of com.ce.memory_limit");
	CHECK_TEXT(outcome.limit, "memory");
	CHECK(outcome.peak > 40 * MIB && outcome.peak < 60 * MIB);
}

TEST("memory of a process that starts a program counts once")
{
	look(spawn, 55 * MIB, 0, 700);
	CHECK_TEXT(outcome.limit, "time");
	CHECK(outcome.peak > 40 * MIB);
}

TEST("files of a container in memory count for its limit")
{
	look(fill_tmpfs, 20 * MIB, 0, 60000);
	CHECK_TEXT(outcome.limit, "memory");
	CHECK(outcome.peak >= 30 * MIB && outcome.peak < 50 * MIB);
}

TEST("a container that runs for longer than its limit is to end")
{
	look(be_container, 0, 0, 200);
	CHECK_TEXT(outcome.text, CE_CAUSE_LIMIT "it ran for longer than the 0.2 s of com.ce.time_limit_s");
	CHECK_TEXT(outcome.limit, "time");
}

TEST("the first process of a container has the limit of processes, and two more for the engine")
{
	look(start_child, 0, 1, 700);
	CHECK_TEXT(outcome.limit, "time");
}

TEST("the cause of an end replaces a warning")
{
	strcpy(outcome.limit, "pids");
	strcpy(outcome.text, "further ones were refused");
	int file = ce_memory_file("outcome", &outcome, sizeof outcome);
	limit(0, 0, 0, file);
	guard_limits_note_end(&guard.limits, "the init process ended");
	ce_outcome_read(file, &outcome);
	CHECK_TEXT(outcome.text, "the init process ended");
	CHECK_TEXT(outcome.limit, "");
}

TEST("a directory that is not the /proc of the container is refused")
{
	test_needs_root();
	CE_AUTO_FD process_dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	limit(0, 0, 1, -1);
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL), 0);
	CHECK_INT(mount("x", "/proc", "tmpfs", 0, NULL), 0);
	CHECK_INT(guard_limits_begin(&guard, process_dir, getpid()), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "cannot look at the processes of the container");
	CHECK_INT(umount2("/proc", MNT_DETACH), 0);
}
