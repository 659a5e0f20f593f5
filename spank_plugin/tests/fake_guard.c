/* Replaces guard/guard.c in the program with which tests/unit/node starts steps: a guard is `fake-guard`
 * beside this program, with the arguments of enum ce_guard_arg and all descriptors of this process. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "guard/guard.h"

int guard_live(struct guard *guard, int specification, int user_ns)
{
	char own[PATH_MAX] = "", program[PATH_MAX + 16], numbers[CE_GUARD_MOST][16];
	char *argv[1 + CE_GUARD_MOST + 1] = { program };
	const int args[] = {
		[CE_GUARD_CONTROL] = guard->control,
		[CE_GUARD_WATCH] = guard->watch,
		[CE_GUARD_LIFE] = guard->life,
		[CE_GUARD_SPECIFICATION] = specification,
		[CE_GUARD_USER_NS] = user_ns,
	};

	if (readlink("/proc/self/exe", own, sizeof own - 1) < 0)
		return CE_EXIT_ENGINE;
	snprintf(program, sizeof program, "%s/fake-guard", dirname(own));
	for (int i = 0; i < (user_ns >= 0 ? CE_GUARD_MOST : CE_GUARD_LEAST); i++) {
		snprintf(numbers[i], sizeof numbers[i], "%d", args[i]);
		argv[1 + i] = numbers[i];
	}
	for (int fd = 3; fd < sysconf(_SC_OPEN_MAX); fd++)
		(void)fcntl(fd, F_SETFD, 0);
	execv(program, argv);
	return CE_EXIT_ENGINE;
}
