#define _GNU_SOURCE
#include "guard_child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "guard_events.h"

static void become_child(struct guard *guard, const char *const argv[], const char *copy, int keep,
			 int output)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ce_default_signals();
	/* signals to the step must not end an image server before the session; Podman, which also starts the
	 * image's entrypoint, gets them */
	if (keep >= 0)
		ce_ignore_step_signals();
	if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(guard->log, 2) < 0)
		_exit(CE_EXIT_ENGINE);
	if (keep >= 0 && fcntl(keep, F_SETFD, 0) < 0)
		_exit(CE_EXIT_ENGINE);
	umask(guard->umask);
	/* execv and execvp do not change the strings; their prototypes predate const */
	if (copy != NULL)
		execv(copy, (char *const *)(uintptr_t)argv);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(GUARD_NOT_STARTED);
}

static pid_t spawn(struct guard *guard, const char *const argv[], const char *copy, int keep, int output)
{
	pid_t pid = fork();

	if (pid < 0)
		return guard_fail(guard, "cannot start %s", argv[0]);
	if (pid == 0)
		become_child(guard, argv, copy, keep, output);
	return pid;
}

pid_t guard_spawn(struct guard *guard, const char *const argv[], int keep)
{
	return spawn(guard, argv, NULL, keep, guard->log);
}

int guard_start_server(struct guard *guard, const char *server, const char *image, int device,
		       const char *mode, int reads)
{
	char target[32];

	/* libfuse takes an open device as /dev/fd/N, so that no setuid fusermount is needed */
	snprintf(target, sizeof target, "/dev/fd/%d", device);
	const char *const argv[] = { server, image, target, mode, NULL };
	pid_t pid = spawn(guard, argv, NULL, device, reads < 0 ? guard->log : reads);
	if (pid < 0)
		return -1;
	guard->fuse_image[guard->fuse_count] = strdup(image);
	guard->fuse_device[guard->fuse_count] =
		guard->kept.lock >= 0 ? fcntl(device, F_DUPFD_CLOEXEC, 3) : -1;
	guard->fuse[guard->fuse_count++] = pid;
	return 0;
}

int guard_run(struct guard *guard, const char *what, char *const argv[], const char *copy, int output)
{
	int status = 0;
	pid_t pid = spawn(guard, (const char *const *)argv, copy, -1, output);

	if (pid < 0 || guard_wait(guard, pid, &status) < 0)
		return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return guard_fail_ended(guard, what, status);
}
