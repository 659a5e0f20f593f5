#define _GNU_SOURCE
#include "user_names.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io.h"

enum { MOST = 64 * 1024 };

/* Start ce-user with `output` as its standard output. Return its pid, or -1. */
static pid_t spawn(const char *prefix, int output)
{
	char program[PATH_MAX + 64];
	char *argv[] = { program, NULL }, *none[] = { NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	snprintf(program, sizeof program, "%s/libexec/container-engine/ce-user", prefix);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return -1;
	int failed = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) != 0 ||
		     posix_spawn(&pid, program, &actions, NULL, argv, none) != 0;
	posix_spawn_file_actions_destroy(&actions);
	return failed ? -1 : pid;
}

int ce_user_has_names(const char *prefix, const char *text, size_t size)
{
	int ends[2];
	size_t found_size = 0;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return 0;
	pid_t pid = spawn(prefix, ends[1]);
	close(ends[1]);
	CE_AUTO_FREE char *found = pid > 0 ? ce_read_all(ends[0], MOST, &found_size) : NULL;
	/* before it is waited for: it may have more to say */
	close(ends[0]);
	int status = pid > 0 ? ce_await_child(pid) : -1;
	return found != NULL && status == 0 && found_size == size && memcmp(found, text, size) == 0;
}
