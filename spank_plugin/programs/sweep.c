/*
 * Waits for the end of a process and then cleans up after it. Runs as the user, in the background:
 * returns when the process that does the work has been forked.
 *
 * ce-sweep COMMAND GUARD MOUNT_NS     (open descriptors: two pidfds and the container's namespace)
 *     kills what the command of `ce run` has left running. `ce run` itself becomes the command, and the
 *     guard sees no process outside its PID namespace.
 * ce-keep OWNER DIRECTORY RECORD     (a pidfd and two paths)
 *     removes an image store that was made for one launch (EDF_IMAGESTORE=void), and the symlink to it.
 *     Until then it updates the directory's time now and then, which shows other hosts that this
 *     process is still waiting.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/io.h"
#include "common/program.h"
#include "common/standard_streams.h"
#include "common/sweep.h"

enum { GUARD_WAIT_MS = 2000, BEAT_MS = 300 * 1000 };
/* the numbers to which the given descriptors are moved; all others, which may be the caller's pipes, are
 * closed */
enum { COMMAND = 3, GUARD, MOUNT_NS, FIRST_CLOSED };

static int keep_only(char **numbers, int count)
{
	int high[FIRST_CLOSED - COMMAND];

	for (int i = 0; i < count; i++) {
		high[i] = fcntl(atoi(numbers[i]), F_DUPFD_CLOEXEC, FIRST_CLOSED);
		if (high[i] < 0)
			return -1;
	}
	for (int i = 0; i < count; i++) {
		if (dup2(high[i], COMMAND + i) < 0)
			return -1;
	}
	return close_range((unsigned)(COMMAND + count), ~0U, 0);
}

/* Release the caller's terminal, pipes and directory. */
static int let_go(void)
{
	CE_AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < COMMAND; fd++) {
		if (null < 0 || dup2(null, fd) < 0)
			return -1;
	}
	return setsid() < 0 || chdir("/") < 0 ? -1 : 0;
}

static void work(void)
{
	struct pollfd command = { .fd = COMMAND, .events = POLLIN };

	ce_default_signals();
	ce_ignore_step_signals();
	while (poll(&command, 1, -1) <= 0)
		;
	/* first wait for the guard's end: without the image, what the command has left cannot start programs
	 * from it */
	ce_wait_readable(GUARD, ce_now_ms() + GUARD_WAIT_MS);
	ce_sweep(MOUNT_NS);
}

static void keep(const char *directory, const char *record)
{
	struct pollfd owner = { .fd = COMMAND, .events = POLLIN };

	ce_default_signals();
	ce_ignore_step_signals();
	while (poll(&owner, 1, BEAT_MS) <= 0)
		utimensat(AT_FDCWD, directory, NULL, AT_SYMLINK_NOFOLLOW);
	execl("/bin/rm", "rm", "-rf", "--", directory, record, (char *)NULL);
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	int is_keeper = argc > 0 && ce_is_called(argv[0], "ce-keep");

	if (argc != 4) {
		fprintf(stderr, "ce: error: this program is started by the container engine only\n");
		return CE_EXIT_ENGINE;
	}
	if (keep_only(argv + 1, is_keeper ? 1 : FIRST_CLOSED - COMMAND) < 0)
		return CE_EXIT_ENGINE;
	/* not a child of the command: programs that wait for all their children would wait for it */
	pid_t pid = fork();
	if (pid == 0) {
		if (let_go() < 0)
			_exit(CE_EXIT_ENGINE);
		if (is_keeper)
			keep(argv[2], argv[3]);
		else
			work();
		_exit(0);
	}
	return pid > 0 ? 0 : CE_EXIT_ENGINE;
}
