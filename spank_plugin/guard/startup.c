#define _GNU_SOURCE
#include "startup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMBER = 12, MAX_CHANGES = 64 * 1024 * 1024 };

/* The descriptors that ce-enter and the steps get. */
struct passed {
	int fds[CE_REPORTED_UNSHARED + CE_MAX_UNSHARED + 2];
	size_t count;
};

/* Return the step's variables as a list on the heap, whose texts are those of `env`. */
static char **variables_of(const struct ce_step_env *env)
{
	size_t count = 0;

	for (size_t at = 0; ce_step_next(env, &at) != NULL; count++)
		;
	char **list = calloc(count + 1, sizeof *list);
	for (size_t i = 0, at = 0; list != NULL && i < count; i++)
		list[i] = (char *)ce_step_next(env, &at);
	return list;
}

/* Start a command in a process group of its own. Return its pid, -1 on failure. */
static pid_t spawn(char **argv, char **variables, const struct passed *passed, int log)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	pid_t pid = -1;

	if (variables == NULL || posix_spawn_file_actions_init(&actions) != 0)
		return -1;
	posix_spawnattr_init(&attributes);
	int failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP) |
		     posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) |
		     posix_spawn_file_actions_adddup2(&actions, log, 1) |
		     posix_spawn_file_actions_adddup2(&actions, log, 2);
	/* onto itself: that is how a descriptor comes to be inherited */
	for (size_t i = 0; i < passed->count; i++)
		failed |= posix_spawn_file_actions_adddup2(&actions, passed->fds[i], passed->fds[i]);
	if (failed == 0)
		failed = posix_spawn(&pid, argv[0], &actions, &attributes, argv, variables);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return failed == 0 ? pid : -1;
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

/* Run the steps, which write their changes to `output`. Return 0 if they have ended well. */
static int run(struct ce_startup *startup, const struct ce_step_env *env, const struct ce_report *report,
	       long long timeout_ms, const char *prefix, const struct ce_ready *ready, int output)
{
	char program[PATH_MAX + 64], namespaces[(1 + CE_MAX_UNSHARED) * NUMBER], numbers[3][NUMBER];
	char *argv[1 + CE_ENTER_COMMAND + CE_STARTUP_WORDS + 2] = {
		program,
		[1 + CE_ENTER_NAMESPACES] = namespaces,
		[1 + CE_ENTER_MOUNT_NS] = numbers[0],
		[1 + CE_ENTER_ENVIRONMENT] = numbers[1],
		[1 + CE_ENTER_WORKDIR] = (char *)ready->workdir,
	};
	CE_AUTO_FD records = ce_memory_file("ce-env", ready->records, ready->records_size);
	CE_AUTO_FREE char **variables = variables_of(env);
	struct ce_fields words = startup->words;
	struct passed passed = { { report->fds[CE_REPORTED_MOUNT_NS], records, output }, 3 };
	int length = 0, place = 1 + CE_ENTER_COMMAND;

	for (int i = -1; i < report->unshared; i++) {
		int fd = report->fds[i < 0 ? CE_REPORTED_USER_NS : CE_REPORTED_UNSHARED + i];
		passed.fds[passed.count++] = fd;
		length += snprintf(namespaces + length, NUMBER, i < 0 ? "%d" : ",%d", fd);
	}
	for (int i = 0; i < 3; i++)
		snprintf(numbers[i], NUMBER, "%d", passed.fds[i]);
	snprintf(program, sizeof program, "%s/libexec/container-engine/ce-enter", prefix);
	for (long long left = startup->count; left > 0; left--)
		argv[place++] = (char *)ce_take(&words);
	argv[place] = numbers[2];
	pid_t pid = records >= 0 ? spawn(argv, variables, &passed, startup->log) : -1;
	if (pid < 0) {
		ce_close_fd(&startup->log);
		return -1;
	}
	startup->status = await_end(pid, timeout_ms);
	return startup->status;
}

/* Add what the steps have written to the records: a NUL, which shows that they have come to their end, and
 * more records. Return 0, or -1 if they have not written that. */
static int add_changes(struct ce_ready *ready, int output)
{
	size_t size = 0;
	CE_AUTO_FREE char *changes = ce_read_file_at(output, MAX_CHANGES, &size);

	if (changes == NULL || size == 0 || changes[0] != '\0')
		return -1;
	char *records = malloc(ready->records_size + size);
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
	startup->log = output >= 0 ? ce_memory_file("ce-startup-log", "", 0) : -1;
	if (startup->log < 0 || run(startup, env, report, timeout_ms, prefix, ready, output) != 0)
		return -1;
	return add_changes(ready, output);
}
