/*
 * ce-attend: stops what hooks run in a container beside its tasks (an ssh server, a daemon for GPUs).
 *
 * ce-attend GUARD MOUNT_NS END SPECIFICATION DONE     (open descriptors; END and DONE may be -1)
 *
 * Services are started by the launcher and live in the host's PID namespace, as tasks do, so the kernel does
 * not end them with the guard. This process is started before the first service and outlives the guard for a
 * moment: it waits for GUARD, a pidfd, and then kills every process in the container's mount namespace,
 * whatever its session, process group or parent (sweep). END is a socket to the guard, which closes it when
 * the session ends cleanly: services are then stopped by their own commands, while their image is still
 * served, and the guard waits for that. DONE is the end of a pipe that closes with this process: slurmstepd
 * waits for it before Slurm kills what is left of the step.
 *
 * Runs as the user, outside the container. The specification has the guard's format; the operations:
 *    stop PROGRAM ARG…       stops a service cleanly
 *    sweep WHAT              kills every process in the container (left out if other steps may be in it)
 *    remove PATH             removes a file, or an empty directory, that marks the services as running
 *    poststop PROGRAM ARG…   runs an OCI hook of that stage when the container is gone, however it ended
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fields.h"
#include "common/io.h"
#include "common/standard_streams.h"
#include "common/sweep.h"

/* for all stop commands together; the guard waits a little longer */
enum { STOP_MS = 1000, MAX_SPECIFICATION = 1 << 20, MAX_WORDS = 64 };

struct attendant {
	int guard;
	int mount_ns;
	int end;
	char *text;
	size_t size;
};

static void stop_one(char *const words[], int64_t deadline)
{
	int null = -1;
	pid_t pid = fork();

	if (pid == 0) {
		ce_default_signals();
		null = open("/dev/null", O_RDWR);
		if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
			_exit(CE_EXIT_ENGINE);
		execv(words[0], words);
		_exit(CE_EXIT_NOT_FOUND);
	}
	CE_AUTO_FD process = pid > 0 ? ce_pidfd_open(pid) : -1;
	if (process < 0)
		return;
	if (!ce_wait_readable(process, deadline))
		ce_pidfd_kill(process, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void remove_one(const char *path)
{
	if (unlink(path) < 0)
		rmdir(path);
}

/* Execute the operations called `wanted`. The text was written by the launcher and is well-formed. */
static void run_operations(const struct attendant *self, const char *wanted)
{
	struct ce_fields fields = { self->text, self->text + self->size, 0 };
	int64_t deadline = ce_now_ms() + STOP_MS;

	while (fields.next < fields.end) {
		char *words[MAX_WORDS + 1] = { NULL };
		const char *name = ce_take(&fields);
		long long count = ce_take_number(&fields);
		if (count < 1 || count > MAX_WORDS)
			return;
		for (long long i = 0; !fields.bad && i < count; i++)
			words[i] = (char *)ce_take(&fields);
		if (fields.bad || strcmp(name, wanted) != 0)
			continue;
		if (strcmp(name, "sweep") == 0)
			ce_sweep(self->mount_ns);
		else if (strcmp(name, "remove") == 0)
			remove_one(words[0]);
		else
			stop_one(words, deadline);
	}
}

static void attend(struct attendant *self)
{
	struct pollfd fds[] = { { .fd = self->guard, .events = POLLIN },
				{ .fd = self->end, .events = POLLIN } };

	while (fds[0].revents == 0) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[0].revents != 0 || fds[1].revents == 0)
			continue;
		/* the guard is still alive, and so is the image */
		run_operations(self, "stop");
		ce_close_fd(&self->end);
		fds[1].fd = -1;
		fds[1].revents = 0;
	}
	run_operations(self, "sweep");
	run_operations(self, "remove");
	run_operations(self, "poststop");
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	struct attendant self = { -1, -1, -1, NULL, 0 };

	if (argc != 6) {
		fprintf(stderr, "ce-attend: started by the container engine's launcher only\n");
		return CE_EXIT_ENGINE;
	}
	self.guard = ce_descriptor(argv[1]);
	self.mount_ns = ce_descriptor(argv[2]);
	self.end = ce_descriptor(argv[3]);
	int specification = ce_descriptor(argv[4]);
	/* make it close-on-exec: the programs that are executed from here must not hold it open */
	(void)ce_descriptor(argv[5]);
	self.text = ce_read_all(specification, MAX_SPECIFICATION, &self.size);
	if (self.guard < 0 || self.mount_ns < 0 || self.text == NULL)
		return CE_EXIT_ENGINE;
	/* the commands that stop services enter the container through it */
	fcntl(self.mount_ns, F_SETFD, 0);
	/* not a child of the caller: `ce run` becomes the user's command, which may
	 * wait for any child of its own */
	pid_t pid = fork();
	if (pid != 0)
		return pid > 0 ? 0 : CE_EXIT_ENGINE;
	setsid();
	ce_ignore_step_signals();
	attend(&self);
	free(self.text);
	return 0;
}
