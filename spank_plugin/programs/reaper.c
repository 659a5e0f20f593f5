/*
 * ce-reaper: waits for the end of a process, and then ends or removes what it has left. Returns when the
 * process that does so has been forked, as the user and outside the container.
 *
 * ce-reaper services GUARD MOUNT_NS END SPECIFICATION DONE     (open descriptors; END and DONE may be -1)
 *     ends what hooks run in a container beside its tasks (an ssh server, a daemon for GPUs). Services are
 *     started by the launcher and live in the host's PID namespace, as tasks do, so the kernel does not end
 *     them with the guard. This process is started before the first service and outlives the guard for a
 *     moment: it waits for GUARD, a pidfd, and then kills every process in the container's mount namespace,
 *     whatever its session, process group or parent (kill). END is a socket to the guard, which closes it
 *     when the session ends cleanly: services are then stopped by their own commands, and all that is left in
 *     the container is killed, while the image is still served, and the guard waits for that. DONE is the end
 *     of a pipe that closes with this process:
 *     slurmstepd waits for it before Slurm kills what is left of the step. The specification has the guard's
 *     format; the operations:
 *        stop PROGRAM ARG…       stops a service cleanly
 *        kill WHAT               kills every process in the container (left out if other steps may be in it)
 *        remove PATH             removes a file, or an empty directory, that marks the services as running
 *        poststop PROGRAM ARG…   runs an OCI hook of that stage when the container is gone, however it ended
 * ce-reaper processes COMMAND GUARD MOUNT_NS END     (open descriptors: a pidfd, and as above)
 *     kills what the command of `ce run` has left running, or the command itself if the guard dies first.
 *     `ce run` itself becomes the command, and the guard sees no process outside its PID namespace.
 * ce-reaper store OWNER DIRECTORY RECORD     (a pidfd and two paths)
 *     removes an image store that was made for one launch (EDF_IMAGESTORE=void), and the symlink to it.
 *     Until then it updates the directory's time now and then, which shows other hosts that this
 *     process is still waiting.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/fields.h"
#include "common/io.h"
#include "common/kill_container.h"
#include "common/program.h"

/* STOP_MS: for all stop commands together; the guard waits a little longer */
enum { STOP_MS = 1000, GUARD_WAIT_MS = 2000, REPORT_MS = 2000, DEATH_MS = 200, BEAT_MS = 300 * 1000 };
enum { MAX_SPECIFICATION = 1 << 20, MAX_WORDS = 64 };

/* ---- services ---------------------------------------------------------------------------------- */

struct services {
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
static void run_operations(const struct services *self, const char *wanted)
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
		if (strcmp(name, "kill") == 0)
			/* while the guard waits, its container stays */
			ce_kill_container(self->mount_ns, self->end >= 0);
		else if (strcmp(name, "remove") == 0)
			remove_one(words[0]);
		else
			stop_one(words, deadline);
	}
}

static void end_services(struct services *self)
{
	struct pollfd fds[] = { { .fd = self->guard, .events = POLLIN },
				{ .fd = self->end, .events = POLLIN } };

	while (fds[0].revents == 0) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[0].revents != 0 || fds[1].revents == 0)
			continue;
		/* The guard is still alive, and so is the image: without it, the commands of a script that
		 * was left running would fail, and it would go on with the next. */
		run_operations(self, "stop");
		run_operations(self, "kill");
		ce_close_fd(&self->end);
		fds[1].fd = -1;
		fds[1].revents = 0;
	}
	if (self->end >= 0) { /* the guard has died */
		run_operations(self, "kill");
		ce_close_fd(&self->end);
		poll(NULL, 0, DEATH_MS);
	}
	run_operations(self, "kill");
	run_operations(self, "remove");
	run_operations(self, "poststop");
}

/* Return 0, or -1 if an argument is not a descriptor or the specification cannot be read. */
static int take_services(char **args, struct services *self)
{
	self->guard = ce_descriptor(args[0]);
	self->mount_ns = ce_descriptor(args[1]);
	self->end = ce_descriptor(args[2]);
	int specification = ce_descriptor(args[3]);
	/* make it close-on-exec: the programs that are executed from here must not hold it open */
	(void)ce_descriptor(args[4]);
	self->text = ce_read_all(specification, MAX_SPECIFICATION, &self->size);
	if (self->guard < 0 || self->mount_ns < 0 || self->text == NULL)
		return -1;
	/* the commands that stop services enter the container through it */
	return fcntl(self->mount_ns, F_SETFD, 0);
}

/* ---- processes of `ce run`, and stores --------------------------------------------------------- */

/* the numbers to which the given descriptors are moved; all others, which may be the caller's pipes, are
 * closed */
enum { COMMAND = 3, GUARD, MOUNT_NS, END, FIRST_CLOSED, OWNER = COMMAND };

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

static void kill_processes(void)
{
	struct pollfd ends[] = { { .fd = GUARD, .events = POLLIN }, { .fd = END, .events = POLLIN } };

	while (poll(ends, 2, -1) <= 0)
		;
	/* as above, and once more when the guard can start nothing */
	ce_kill_container(MOUNT_NS, 1);
	close(END);
	ce_wait_readable(GUARD, ce_now_ms() + GUARD_WAIT_MS);
	/* of a command that was killed here, the process beside it reports the end */
	ce_wait_readable(COMMAND, ce_now_ms() + REPORT_MS);
	ce_kill_container(MOUNT_NS, 0);
}

static void remove_store(const char *directory, const char *record)
{
	struct pollfd owner = { .fd = OWNER, .events = POLLIN };

	while (poll(&owner, 1, BEAT_MS) <= 0)
		utimensat(AT_FDCWD, directory, NULL, AT_SYMLINK_NOFOLLOW);
	execl("/bin/rm", "rm", "-rf", "--", directory, record, (char *)NULL);
}

/* ------------------------------------------------------------------------------------------------ */

/* Release the caller's terminal and standard streams, and survive the signals that are for its group. */
static int let_go(void)
{
	CE_AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);

	ce_default_signals();
	ce_ignore_step_signals();
	for (int fd = 0; fd < 3; fd++) {
		if (null < 0 || dup2(null, fd) < 0)
			return -1;
	}
	return setsid() < 0 ? -1 : 0;
}

static int is_asked(int argc, char **argv, const char *what, int arguments)
{
	return argc == 2 + arguments && strcmp(argv[1], what) == 0;
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	struct services services = { -1, -1, -1, NULL, 0 };
	int of_services = is_asked(argc, argv, "services", 5);
	int of_processes = is_asked(argc, argv, "processes", 4), of_store = is_asked(argc, argv, "store", 3);
	char **args = argv + 2;

	if (!of_services && !of_processes && !of_store) {
		fprintf(stderr, "ce: error: this program is started by the container engine only\n");
		return CE_EXIT_ENGINE;
	}
	int rc = of_services ? take_services(args, &services) : keep_only(args, of_store ? 1 : 4);
	if (rc < 0)
		return CE_EXIT_ENGINE;
	/* not a child of the caller: `ce run` becomes the user's command, which may wait for any child of its
	 * own */
	pid_t pid = fork();
	if (pid != 0)
		return pid > 0 ? 0 : CE_EXIT_ENGINE;
	/* hooks run in the directory of the step */
	if (let_go() < 0 || (!of_services && chdir("/") < 0))
		return CE_EXIT_ENGINE;
	if (of_services)
		end_services(&services);
	else if (of_processes)
		kill_processes();
	else
		remove_store(args[1], args[2]);
	free(services.text);
	return 0;
}
