#define _GNU_SOURCE
#include "startup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"

enum { NUMBER = 12, MAX_CHANGES = 64 * 1024 * 1024 };

/* Become the command, in a process group of its own and without variables. */
static void become(char **argv, const int fds[], size_t count, int log)
{
	char *none[] = { NULL };
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ce_default_signals(); /* the guard ignores what would end it */
	for (size_t i = 0; i < count; i++)
		(void)fcntl(fds[i], F_SETFD, 0);
	if (setpgid(0, 0) == 0 && dup2(null, 0) == 0 && dup2(log, 1) == 1 && dup2(log, 2) == 2)
		execve(argv[0], argv, none);
	dprintf(log, "%s: %s\n", argv[0], strerror(errno));
	_exit(CE_EXIT_ENGINE);
}

/* Wait for the end of a process, and kill its group if it fails or is not in time. Return as `status` of
 * struct ce_startup. */
static int await_end(pid_t pid, long long timeout_ms)
{
	int status = -1;
	CE_AUTO_FD process = ce_pidfd_open(pid);
	int in_time = process >= 0 && ce_wait_readable(process, ce_now_ms() + timeout_ms);

	if (!in_time)
		kill(-pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || !in_time)
		return -1;
	if (status != 0)
		kill(-pid, SIGKILL);
	return status;
}

/* Run the steps, with the variables of the descriptor `records`; they write their changes to `output`. Return
 * as `status` of struct ce_startup. */
static int run(struct ce_startup *startup, const struct ce_report *report, long long timeout_ms,
	       const char *prefix, const char *workdir, int records, int output)
{
	char program[PATH_MAX + 64], namespaces[(1 + CE_MAX_UNSHARED) * NUMBER], numbers[3][NUMBER];
	char *argv[1 + CE_ENTER_COMMAND + CE_STARTUP_WORDS + 2] = {
		program,
		[1 + CE_ENTER_NAMESPACES] = namespaces,
		[1 + CE_ENTER_MOUNT_NS] = numbers[0],
		[1 + CE_ENTER_ENVIRONMENT] = numbers[1],
		[1 + CE_ENTER_WORKDIR] = (char *)workdir,
	};
	struct ce_fields words = startup->words;
	int fds[3 + 1 + CE_MAX_UNSHARED] = { report->fds[CE_REPORTED_MOUNT_NS], records, output };
	int count = 3, length = 0, place = 1 + CE_ENTER_COMMAND;

	for (int i = 0; i < 3; i++)
		snprintf(numbers[i], NUMBER, "%d", fds[i]);
	for (int i = -1; i < report->unshared && i < CE_MAX_UNSHARED; i++) {
		fds[count] = report->fds[i < 0 ? CE_REPORTED_USER_NS : CE_REPORTED_UNSHARED + i];
		length += snprintf(namespaces + length, NUMBER, i < 0 ? "%d" : ",%d", fds[count++]);
	}
	snprintf(program, sizeof program, "%s/libexec/container-engine/ce-enter", prefix);
	for (long long left = startup->count; left > 0; left--)
		argv[place++] = (char *)ce_take(&words);
	argv[place] = numbers[2];
	pid_t pid = fork();
	if (pid == 0)
		become(argv, fds, (size_t)count, startup->log);
	if (pid > 0)
		return await_end(pid, timeout_ms);
	ce_close_fd(&startup->log);
	return -1;
}

/* Add what the steps have written to the records: a NUL, which shows that they have come to their end, and
 * more records. Return 0, or -1 if they have not written that. */
static int add_changes(struct ce_ready *ready, int output)
{
	size_t size = 0;
	CE_AUTO_FREE char *changes = ce_read_file_at(output, MAX_CHANGES, &size);
	char *records = changes != NULL && size > 0 && changes[0] == '\0' ?
				malloc(ready->records_size + size) :
				NULL;

	if (records == NULL)
		return -1;
	memcpy(records, ready->records, ready->records_size);
	memcpy(records + ready->records_size, changes + 1, size - 1);
	ready->records = records;
	ready->records_size += size - 1;
	return 0;
}

int ce_startup_run(struct ce_startup *startup, const struct ce_step_env *env, const struct ce_report *report,
		   long long timeout_ms, const char *prefix, struct ce_ready *ready)
{
	if (startup->count == 0)
		return 0;
	CE_AUTO_FD output = ce_memory_file("ce-startup-env", "", 0);
	/* variables are records, too */
	CE_AUTO_FD records = ce_memory_file("ce-env", env->text, env->size);
	if (output < 0 || records < 0 || lseek(records, 0, SEEK_END) < 0 ||
	    ce_write_all(records, ready->records, ready->records_size) < 0)
		return -1;
	startup->log = ce_memory_file("ce-startup-log", "", 0);
	if (startup->log < 0)
		return -1;
	startup->status = run(startup, report, timeout_ms, prefix, ready->workdir, records, output);
	return startup->status == 0 ? add_changes(ready, output) : -1;
}
