#define _GNU_SOURCE
#include "task_container.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io.h"
#include "common/join.h"
#include "common/outcome.h"
#include "common/protocol.h"
#include "generated/help.h"

enum { MAX_REPORT = 64 * 1024 };

/* Put the namespaces of the report in place of the container's. The report's other descriptors are not
 * needed: the environment, the task guard's pidfd, the mounts. Return 0, or -1 with the error. */
static int take(int fds[CE_MAX_FDS], struct ce_container *container, struct ce_error *err)
{
	if (fds[CE_REPORTED_UNSHARED - 1] < 0 || fds[CE_REPORTED_UNSHARED + CE_MAX_UNSHARED] >= 0) {
		ce_close_all(fds);
		return ce_fail(err, "the report of the task's container is not complete");
	}
	ce_close_fd(&container->user_ns);
	ce_close_fd(&container->mount_ns);
	container->user_ns = ce_release_fd(&fds[CE_REPORTED_USER_NS]);
	container->mount_ns = ce_release_fd(&fds[CE_REPORTED_MOUNT_NS]);
	for (int i = 0; i < CE_MAX_UNSHARED; i++) {
		ce_close_fd(&container->unshared[i]);
		container->unshared[i] = ce_release_fd(&fds[CE_REPORTED_UNSHARED + i]);
	}
	ce_close_all(fds);
	return 0;
}

/* The first container was made with the same plan, so this failure is about a limit of the node or the user,
 * which the message or the last line of the output names. */
static int fail(char *report, struct ce_error *err)
{
	char *rest = report + 1, *stage = strsep(&rest, "\n"), *message, *last = NULL, *line;

	(void)strsep(&rest, "\n");
	message = strsep(&rest, "\n");
	while ((line = strsep(&rest, "\n\f")) != NULL) {
		if (*line != '\0')
			last = line;
	}
	return ce_fail_below(err, CE_HELP_TASK_CONTAINER, "cannot make this task's container: %s: %s%s%s",
			     stage, message != NULL ? message : "", last != NULL ? ": " : "",
			     last != NULL ? last : "");
}

static int await(const struct ce_launcher *launcher, int guard, int64_t deadline_ms,
		 struct ce_container *container, struct ce_error *err)
{
	int fds[CE_MAX_FDS];
	CE_AUTO_FREE char *report = calloc(1, MAX_REPORT + 1);

	if (report == NULL)
		return ce_fail(err, "out of memory");
	for (;;) {
		if (!ce_wait_either(guard, launcher->life, deadline_ms))
			return ce_fail_below(err, CE_HELP_START_TIMEOUT,
					     "the task's container did not start in time");
		ssize_t n = ce_receive(guard, MSG_DONTWAIT, report, MAX_REPORT, fds);
		if (n <= 0)
			return ce_fail_below(err, CE_HELP_CONTAINER_DIED,
					     "the container ended before the task could join it");
		report[n] = '\0';
		if (report[0] == CE_REPORT_OF_NODE)
			return take(fds, container, err);
		ce_close_all(fds);
		if (report[0] == CE_REPORT_FAILED)
			return fail(report, err);
		if (report[0] != CE_REPORT_NOTE)
			return ce_fail(err, "the report of the task's container cannot be read");
	}
}

int ce_task_container(const struct ce_launcher *launcher, int timeout_s, struct ce_container *container,
		      struct ce_error *err)
{
	int ends[2];
	int64_t deadline_ms = ce_now_ms() + (int64_t)timeout_s * 1000;

	if (container->tasks < 0)
		return 0;
	CE_AUTO_FD self = ce_pidfd_open(getpid());
	container->outcome = memfd_create("ce-outcome", MFD_CLOEXEC);
	if (self < 0 || container->outcome < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return ce_fail(err, "cannot ask for the task's container: %s", strerror(errno));
	CE_AUTO_FD guard = ends[0];
	const int fds[] = { [CE_ASKED_ANSWER] = ends[1], [CE_ASKED_TASK] = self,
			    [CE_ASKED_OUTCOME] = container->outcome };
	int rc = ce_send(container->tasks, CE_ASK, 1, fds, CE_ASKED_COUNT);
	close(ends[1]);
	ce_close_fd(&container->tasks);
	if (rc < 0)
		return ce_fail_below(err, CE_HELP_CONTAINER_DIED,
				     "the container ended before the task could join it");
	return await(launcher, guard, deadline_ms, container, err);
}

/* ---- joining after Slurm's prologs ------------------------------------------------------------- */

/* Keep the descriptor open across the execve, and take it from its variable, so that nobody closes it before.
 * Return its number, or -1. */
static int keep(int *fd)
{
	int number = *fd;

	*fd = -1;
	return number >= 0 && fcntl(number, F_SETFD, 0) == 0 ? number : -1;
}

/* Pass on the directory that records printed messages. Without it, ce-join prints messages that other nodes
 * have already printed. */
static void pass_printed_messages(const struct ce_container *container, const struct ce_variables *variables)
{
	CE_AUTO_FREE char *text = NULL;
	int kept = container->marks >= 0 ? fcntl(container->marks, F_DUPFD, 3) : -1;

	if (kept >= 0 && asprintf(&text, "%d %s", kept, container->planned) >= 0)
		(void)variables->set(variables->context, CE_JOIN_PRINTED_MESSAGES, text);
}

int ce_after_prolog_arrange(struct ce_container *container, const char *command,
			    const struct ce_variables *variables, struct ce_error *err)
{
	int user_ns = keep(&container->user_ns), mount_ns = keep(&container->mount_ns);
	int environment = keep(&container->environment), wanted = container->profile >= 0;
	int profile = keep(&container->profile), *unshared = container->unshared;
	CE_AUTO_FREE char *text = NULL;

	if (user_ns < 0 || mount_ns < 0 || environment < 0 || (wanted && profile < 0) ||
	    asprintf(&text, "%d %d %d %d %d %d %d %d %d %d %d %s", user_ns, mount_ns, environment, profile,
		     container->may_gain, keep(&unshared[0]), keep(&unshared[1]), keep(&unshared[2]),
		     keep(&unshared[3]), keep(&container->outcome), keep(&container->guard),
		     container->workdir) < 0 ||
	    variables->set(variables->context, CE_JOIN_CONTAINER, text) < 0 ||
	    variables->set(variables->context, CE_JOIN_COMMAND, command) < 0)
		return ce_fail(err, "cannot prepare the task for its container: %s",
			       strerror(errno));
	pass_printed_messages(container, variables);
	return 0;
}
