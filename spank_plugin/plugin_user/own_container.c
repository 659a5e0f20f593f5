#define _GNU_SOURCE
#include "own_container.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "generated/help.h"
#include "common/io.h"
#include "common/protocol.h"

enum { MAX_REPORT = 64 * 1024 };

/* Put the namespaces of the report in place of the container's. The report's other descriptors are not
 * needed: the environment, the keeper's pidfd, the mounts. Return 0, or -1 with the error. */
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

int ce_own_container(const struct ce_launcher *launcher, int timeout_s, struct ce_container *container,
		      struct ce_error *err)
{
	int ends[2];
	int64_t deadline_ms = ce_now_ms() + (int64_t)timeout_s * 1000;

	if (container->tasks < 0)
		return 0;
	CE_AUTO_FD self = ce_pidfd_open(getpid());
	if (self < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return ce_fail(err, "cannot ask for the task's container: %s", strerror(errno));
	CE_AUTO_FD guard = ends[0];
	const int fds[] = { [CE_ASKED_ANSWER] = ends[1], [CE_ASKED_TASK] = self };
	int rc = ce_send(container->tasks, CE_ASK, 1, fds, CE_ASKED_COUNT);
	close(ends[1]);
	ce_close_fd(&container->tasks);
	if (rc < 0)
		return ce_fail_below(err, CE_HELP_CONTAINER_DIED,
				     "the container ended before the task could join it");
	return await(launcher, guard, deadline_ms, container, err);
}
