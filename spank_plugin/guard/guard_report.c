#define _GNU_SOURCE
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/io.h"
#include "guard.h"

enum { MAX_ENVIRONMENT = 64 * 1024 * 1024, MAX_LOG = 1 << 20 };
/* the most bytes in a packet of the control socket: of the log after a failure, of the OCI hooks' stderr, of
 * the log in a ready report */
enum { MAX_REPORT = 32 * 1024, MAX_HOOKS_STDERR = 4096, MAX_PRINTED = 24 * 1024 };

/* ---- failure ----------------------------------------------------------------------------------- */

/* Return the end of the stderr of OCI hooks, on the heap: crun writes it to this file in the session's
 * directory, our working directory (container_engine/node/hooks/oci_hooks.py). NULL without such a file. */
static char *hooks_stderr(void)
{
	size_t size = 0;
	CE_AUTO_FD file = open("hooks.err", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char *text = file >= 0 ? ce_read_all(file, MAX_LOG, &size) : NULL;

	if (size > MAX_HOOKS_STDERR)
		memmove(text, text + size - MAX_HOOKS_STDERR, MAX_HOOKS_STDERR + 1);
	return text;
}

void guard_report_failure(struct guard *guard)
{
	size_t size = 0;
	CE_AUTO_FREE char *hooks = hooks_stderr();
	CE_AUTO_FREE char *log = ce_read_file_at(guard->log, MAX_LOG, &size);
	CE_AUTO_FREE char *report = NULL;
	const char *tail = log != NULL && size > MAX_REPORT ? log + size - MAX_REPORT : log;
	int length = asprintf(&report, "%c%s\n%d\n%s\n%s%s%s", CE_REPORT_FAILED, guard->stage,
			      guard->stage_errno, ce_error_text(&guard->err), tail != NULL ? tail : "",
			      hooks != NULL ? "\f" : "", hooks != NULL ? hooks : "");

	if (length > 0)
		(void)ce_send(guard->control, report, (size_t)length, NULL, 0);
}

/* ---- ready ------------------------------------------------------------------------------------- */

void guard_note_time(struct guard *guard, const char *name)
{
	struct timespec now;

	if (guard->times_size == 0)
		guard->times[guard->times_size++] = CE_REPORT_OF_NODE;
	if (guard->last_timed != NULL && strcmp(guard->last_timed, name) == 0)
		return;
	size_t room = sizeof guard->times - guard->times_size;
	clock_gettime(CLOCK_MONOTONIC, &now);
	int n = snprintf(guard->times + guard->times_size, room, "%s %lld\n", name,
			 (long long)now.tv_sec * 1000000000 + now.tv_nsec);
	/* a line that does not fit is left out as a whole */
	if (n > 0 && (size_t)n < room)
		guard->times_size += (size_t)n;
	guard->last_timed = name;
}

static int open_in(struct guard *guard, int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	return fd >= 0 ? fd : guard_fail(guard, "cannot open %s of the container's init", name);
}

static int copy_environment(struct guard *guard, int process_dir)
{
	size_t size = 0;
	CE_AUTO_FD source = open_in(guard, process_dir, "environ");
	if (source < 0)
		return -1;
	CE_AUTO_FREE char *text = ce_read_all(source, MAX_ENVIRONMENT, &size);
	if (text == NULL)
		return guard_fail(guard, "cannot read the environment of the container's init");
	int copy = ce_memory_file("ce-environ", text, size);
	return copy >= 0 ? copy : guard_fail(guard, "cannot keep the container's environment");
}

/* Send the times and, after a NUL, the end of our children's output, which includes that of an image's
 * entrypoint if the launcher wants it. */
static int send_ready(struct guard *guard, const int fds[], size_t count)
{
	size_t size = 0;
	CE_AUTO_FREE char *log = ce_read_file_at(guard->log, MAX_LOG, &size);
	size_t kept = log == NULL ? 0 : size > MAX_PRINTED ? MAX_PRINTED : size;
	CE_AUTO_FREE char *report = malloc(guard->times_size + 1 + kept);

	if (report == NULL)
		return -1;
	memcpy(report, guard->times, guard->times_size);
	report[guard->times_size] = '\0';
	if (kept > 0)
		memcpy(report + guard->times_size + 1, log + size - kept, kept);
	return ce_send(guard->control, report, guard->times_size + 1 + kept, fds, count);
}

/* Open the namespace of the container's first process unless it is the guard's, which is the node's. Return 1
 * if it was opened, 0 if it is the node's, -1 after guard_fail. */
static int open_unshared(struct guard *guard, int process_dir, const char *name, int *fd)
{
	char own[32];
	struct stat ours, theirs;

	snprintf(own, sizeof own, "/proc/self/%s", name);
	if (stat(own, &ours) < 0 || fstatat(process_dir, name, &theirs, 0) < 0)
		return guard_fail(guard, "cannot compare %s of the container's init", name);
	if (ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev)
		return 0;
	*fd = open_in(guard, process_dir, name);
	return *fd < 0 ? -1 : 1;
}

static int open_all_unshared(struct guard *guard, int process_dir, int fds[], size_t *count)
{
	static const char *const names[] = { "ns/net", "ns/ipc", "ns/uts" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		int opened = open_unshared(guard, process_dir, names[i], &fds[*count]);
		if (opened < 0)
			return -1;
		*count += opened == 1;
	}
	if (!guard->has_pids)
		return 0;
	fds[*count] = open_in(guard, process_dir, "ns/pid");
	if (fds[*count] < 0)
		return -1;
	*count += 1;
	return 0;
}

int guard_report_ready(struct guard *guard, int process_dir)
{
	CE_AUTO_FD user_ns = open_in(guard, process_dir, "ns/user");
	if (user_ns < 0)
		return -1;
	CE_AUTO_FD mount_ns = open_in(guard, process_dir, "ns/mnt");
	if (mount_ns < 0)
		return -1;
	CE_AUTO_FD environment = copy_environment(guard, process_dir);
	if (environment < 0)
		return -1;
	/* where each mount really is, for the site's rules (node/start/site_rules.py) */
	CE_AUTO_FD mounts = open_in(guard, process_dir, "mountinfo");
	if (mounts < 0)
		return -1;
	int container[GUARD_MAX_CONTAINER] = {
		[CE_AT_USER_NS] = user_ns,
		[CE_AT_MOUNT_NS] = mount_ns,
		[CE_AT_ENVIRONMENT] = environment,
		[CE_AT_MOUNTS] = mounts,
	};
	size_t count = CE_AT_UNSHARED;
	int rc = open_all_unshared(guard, process_dir, container, &count);
	if (rc == 0)
		rc = guard_report_container(guard, container, count);
	while (count > CE_AT_UNSHARED)
		close(container[--count]);
	return rc;
}

int guard_report_container(struct guard *guard, const int container[], size_t count)
{
	int fds[GUARD_MAX_CONTAINER + 1];
	CE_AUTO_FD self = ce_pidfd_open(getpid());

	if (self < 0)
		return guard_fail(guard, "cannot open a descriptor of the guard");
	const size_t before = CE_REPORTED_GUARD;
	memcpy(fds, container, before * sizeof *fds);
	fds[CE_REPORTED_GUARD] = self;
	memcpy(fds + before + 1, container + before, (count - before) * sizeof *fds);
	guard_note_time(guard, "ready");
	if (send_ready(guard, fds, count + 1) < 0)
		return guard_fail(guard, "cannot answer the launcher");
	return guard_keep_container(guard, container, count);
}
