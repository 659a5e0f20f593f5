/*
 * Limits of a container with processes of its own. The kernel keeps the number of processes: it counts them
 * for each user namespace, and each container has one (RLIMIT_NPROC). Memory and time it limits only in a
 * cgroup, which root would have to give to users: this process looks at the container's memory, in its /proc
 * and in its tmpfs mounts, and at the clock. It is outside of the container's PID namespace, whose processes
 * can neither see nor stop it, nor leave that namespace: the end of its first process is the end of all.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/io.h"
#include "common/outcome.h"
#include "guard_ops.h"
#include "guard_walk.h"

/* SPEED is in bytes for each millisecond: a few threads that do nothing but write to new pages need about
 * that long for the rest of their memory */
/* the container's first process, and the one beside the task (join.h), which the kernel counts, too */
enum { OWN_PROCESSES = 2, MOST_PASSES = 20 };
enum { LEAST_MS = 20, MOST_MS = 500, SPEED = 4 << 20, MAX_STATUS = 8192, MAX_MOUNTS = 16 << 20 };

int guard_op_limits(struct guard *guard, char **args)
{
	struct guard_limits *limits = &guard->limits;

	limits->is_wanted = 1;
	limits->memory = strtoull(args[0], NULL, 10);
	limits->pids = strtoull(args[1], NULL, 10);
	limits->time_ms = strtoll(args[2], NULL, 10);
	limits->outcome = ce_descriptor(args[3]);
	return 0;
}

/* ---- what the container has -------------------------------------------------------------------- */

/* Return whether this is the /proc in which the container's first process has the number 1. */
static int is_proc_of(int proc, int process_dir)
{
	struct statfs file_system;
	struct stat first, container;

	return fstatfs(proc, &file_system) == 0 && file_system.f_type == PROC_SUPER_MAGIC &&
	       fstatat(proc, "1/ns/pid", &first, 0) == 0 &&
	       fstatat(process_dir, "ns/pid", &container, 0) == 0 && first.st_ino == container.st_ino &&
	       first.st_dev == container.st_dev;
}

void guard_limits_promise(const struct guard *guard, int outcome)
{
	const struct ce_outcome promised = { .is_watched = 1 };

	/* without it, the limits hold, but no line says so */
	if (guard->limits.is_wanted && outcome >= 0 &&
	    pwrite(outcome, &promised, offsetof(struct ce_outcome, failed), 0) < 0)
		return;
}

/* Give a process the limit, unless it has a lower one. Return whether it got it, or -1 with errno. */
static int limit_process(pid_t pid, rlim_t most)
{
	struct rlimit limit;

	if (prlimit(pid, RLIMIT_NPROC, NULL, &limit) < 0)
		return -1;
	if (limit.rlim_max <= most)
		return 0;
	limit.rlim_max = most;
	limit.rlim_cur = limit.rlim_cur < most ? limit.rlim_cur : most;
	return prlimit(pid, RLIMIT_NPROC, &limit, NULL) < 0 ? -1 : 1;
}

/* Return whether a process of this process's /proc is in the container: in its PID namespace, or in one that
 * was made there. */
static int is_inside(int proc, const char *name, const struct stat *container)
{
	struct stat found;
	char path[64];

	snprintf(path, sizeof path, "%.16s/ns/pid", name);
	int space = openat(proc, path, O_RDONLY | O_CLOEXEC);
	while (space >= 0) {
		CE_AUTO_FD this = space;

		if (fstat(this, &found) == 0 && found.st_ino == container->st_ino)
			return 1;
		space = ioctl(this, NS_GET_PARENT);
	}
	return 0;
}

/* Give the limit to all processes of the container that there are: its first one, from which tasks take it,
 * and what an entrypoint has left. It is not in the runtime's configuration, because the runtime sets it
 * before it makes the user namespace: the kernel then counts all that is in the guard's namespace as well. */
static int limit_processes(const struct guard_limits *limits, pid_t first, int process_dir)
{
	struct stat container;
	rlim_t most = limits->pids + OWN_PROCESSES;
	const char *name;

	if (limits->pids == 0)
		return 0;
	if (limit_process(first, most) < 0 || fstatat(process_dir, "ns/pid", &container, 0) < 0)
		return -1;
	for (int again = 1, passes = 0; again && passes < MOST_PASSES; passes++) {
		CE_AUTO_DIR *dir = opendir("/proc");
		again = 0;
		while (dir != NULL && (name = ce_next_name(dir)) != NULL) {
			long pid = strtol(name, NULL, 10);
			if (pid > 1 && is_inside(dirfd(dir), name, &container))
				again |= limit_process((pid_t)pid, most) == 1;
		}
	}
	return 0;
}

int guard_limits_begin(struct guard *guard, int process_dir, pid_t pid)
{
	struct guard_limits *limits = &guard->limits;

	int has_limit = limits->memory > 0 || limits->pids > 0 || limits->time_ms > 0;

	/* without a PID namespace of its own, the container's processes cannot be told from others */
	if (!limits->is_wanted || (!has_limit && !guard->has_pids))
		return 0;
	limits->root = openat(process_dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	limits->proc = openat(limits->root, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	limits->mounts = openat(process_dir, "mountinfo", O_RDONLY | O_CLOEXEC);
	if (limits->proc < 0 || limits->mounts < 0 || !is_proc_of(limits->proc, process_dir))
		return guard_fail(guard, "cannot look at the processes of the container");
	if (limit_processes(limits, pid, process_dir) < 0)
		return guard_fail(guard, "cannot limit the processes of the container");
	guard_limits_promise(guard, limits->outcome);
	return 0;
}

/* Keep the tmpfs mount that a line of mountinfo is about, unless this process, as the node, has it, too. */
static void take_tmpfs(struct guard_limits *limits, char *line, const char *own)
{
	unsigned device[2];
	int skipped = 0, length = 0;
	char number[32];
	struct stat found;

	if (strstr(line, " - tmpfs ") == NULL || limits->file_count == GUARD_MAX_TMPFS ||
	    sscanf(line, "%*d %*d %u:%u %*s %n%*s%n", &device[0], &device[1], &skipped, &length) != 2 ||
	    length <= skipped)
		return;
	snprintf(number, sizeof number, " %u:%u ", device[0], device[1]);
	if (strstr(own, number) != NULL)
		return;
	line[length] = '\0';
	ce_unescape_mount(line + skipped);
	CE_AUTO_FD file = guard_open_in_root(limits->root, line + skipped, O_PATH);
	/* another mount may be above it */
	if (file >= 0 && fstat(file, &found) == 0 && found.st_dev == makedev(device[0], device[1]))
		limits->files[limits->file_count++] = ce_release_fd(&file);
}

/* Look for the container's tmpfs mounts again if its mounts have changed. */
static void look_for_tmpfs(struct guard_limits *limits)
{
	struct pollfd changed = { .fd = limits->mounts, .events = POLLPRI };
	size_t size = 0;
	char *rest = NULL;

	if (limits->file_count > 0 && poll(&changed, 1, 0) == 0)
		return;
	while (limits->file_count > 0)
		ce_close_fd(&limits->files[--limits->file_count]);
	CE_AUTO_FREE char *own = ce_read_path(AT_FDCWD, "/proc/self/mountinfo", 0, MAX_MOUNTS, NULL);
	CE_AUTO_FREE char *all = ce_read_file_at(limits->mounts, MAX_MOUNTS, &size);
	if (own == NULL || all == NULL)
		return;
	for (char *line = strtok_r(all, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
		take_tmpfs(limits, line, own);
}

static uint64_t used_by(int file)
{
	struct statfs found;

	return fstatfs(file, &found) == 0 ? (found.f_blocks - found.f_bfree) * (uint64_t)found.f_bsize : 0;
}

/* Return the bytes of files that the container has in memory: its writable layer and its tmpfs mounts. */
static uint64_t in_files(struct guard_limits *limits)
{
	CE_AUTO_FD own = open(".", O_PATH | O_CLOEXEC);
	uint64_t sum = used_by(own);

	look_for_tmpfs(limits);
	for (size_t i = 0; i < limits->file_count; i++)
		sum += used_by(limits->files[i]);
	return sum;
}

/* Return the number after `key` in a file of /proc whose lines are "KEY: NUMBER [kB]"; 0 without the key. */
static uint64_t number_of(const char *text, const char *key)
{
	const char *found = strstr(text, key);

	return found != NULL ? strtoull(found + strlen(key), NULL, 10) : 0;
}

struct use {
	uint64_t memory, threads, parent;
};

/* Return what a process has for itself, with pages that it shares with others as a whole; with `is_exact`
 * only its part of these, which takes the kernel a look at every page. */
static struct use of_process(int proc, const char *name, int is_exact)
{
	char path[64];

	if (snprintf(path, sizeof path, "%s/status", name) >= (int)sizeof path)
		return (struct use){ 0, 0, 0 };
	CE_AUTO_FREE char *status = ce_read_path(proc, path, 0, MAX_STATUS, NULL);
	if (status == NULL)
		return (struct use){ 0, 0, 0 };
	uint64_t memory = number_of(status, "\nRssAnon:") + number_of(status, "\nRssShmem:") +
			  number_of(status, "\nVmSwap:");
	uint64_t threads = strcmp(name, "1") == 0 ? 0 : number_of(status, "\nThreads:");
	snprintf(path, sizeof path, "%s/smaps_rollup", name);
	CE_AUTO_FREE char *pages =
		is_exact && memory > 0 ? ce_read_path(proc, path, 0, MAX_STATUS, NULL) : NULL;
	if (pages != NULL && strstr(pages, "\nPss_Anon:") != NULL)
		memory = number_of(pages, "\nPss_Anon:") + number_of(pages, "\nPss_Shmem:") +
			 number_of(pages, "\nSwapPss:");
	return (struct use){ memory * 1024, threads, number_of(status, "\nPPid:") };
}

/* Return the memory of the container, each page once. Until it executes a program, a child of vfork has the
 * memory of its parent, and so have the children of posix_spawn: only kcmp tells, which wants the numbers
 * that processes have here. It is asked before the child's memory is read, which may then be its own. */
static uint64_t exactly(struct guard_limits *limits)
{
	uint64_t sum = in_files(limits);
	CE_AUTO_DIR *dir = opendir("/proc");
	struct stat container;
	const char *name;

	if (dir == NULL || fstatat(limits->proc, "1/ns/pid", &container, 0) < 0)
		return sum;
	while ((name = ce_next_name(dir)) != NULL) {
		long pid = strtol(name, NULL, 10);
		if (pid <= 0 || !is_inside(dirfd(dir), name, &container))
			continue;
		uint64_t parent = of_process(dirfd(dir), name, 0).parent;
		if (syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0) != 0)
			sum += of_process(dirfd(dir), name, 1).memory;
	}
	return sum;
}

static struct use of_container(struct guard_limits *limits)
{
	struct use sum = { in_files(limits), 0, 0 };
	int copy = openat(limits->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CE_AUTO_DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	const char *name;

	while (dir != NULL && (name = ce_next_name(dir)) != NULL) {
		if (*name < '0' || *name > '9')
			continue;
		struct use one = of_process(limits->proc, name, 0);
		sum.memory += one.memory;
		sum.threads += one.threads;
	}
	return sum;
}

/* ---- limits ------------------------------------------------------------------------------------ */

/* Note what was seen: with `limit`, which was reached, or "" for another end. */
static void note(const struct guard_limits *limits, uint64_t peak, const char *limit, const char *text)
{
	struct ce_outcome outcome;

	if (limits->outcome < 0)
		return;
	ce_outcome_read(limits->outcome, &outcome);
	if (peak > outcome.peak)
		outcome.peak = peak;
	if (limit != NULL) {
		snprintf(outcome.limit, sizeof outcome.limit, "%s", limit);
		snprintf(outcome.text, sizeof outcome.text, "%s", text);
	}
	/* without it, the container is ended all the same */
	if (pwrite(limits->outcome, &outcome, offsetof(struct ce_outcome, failed), 0) < 0)
		return;
}

void guard_limits_note_end(const struct guard_limits *limits, const char *cause)
{
	if (!limits->is_reached)
		note(limits, 0, "", cause);
}

/* Note the limit, for which the container is to end. It does so with this process, which first reports the
 * cause, or, where each task has one, with its first process. Return -1 after guard_fail. */
static int end(struct guard *guard, uint64_t peak, const char *limit, const char *text)
{
	guard->limits.is_reached = 1;
	note(&guard->limits, peak, limit, text);
	errno = 0;
	return guard_fail(guard, "%s", text);
}

static int64_t pause_for(const struct guard_limits *limits, const struct use *use)
{
	int64_t pause = MOST_MS;

	if (limits->memory > 0)
		pause = (int64_t)((limits->memory - use->memory) / SPEED);
	return pause < LEAST_MS ? LEAST_MS : pause > MOST_MS ? MOST_MS : pause;
}

/* Look at the container. Return the milliseconds until the next look, or -1 after guard_fail. */
static int64_t look(struct guard *guard)
{
	struct guard_limits *limits = &guard->limits;
	struct use use = of_container(limits);
	char text[200];

	if (limits->memory > 0 && use.memory > limits->memory)
		use.memory = exactly(limits);
	if (limits->memory > 0 && use.memory > limits->memory) {
		snprintf(text, sizeof text,
			 CE_CAUSE_LIMIT "it used %llu MiB of memory, more than the %llu MiB of "
					"com.ce.memory_limit",
			 (unsigned long long)((use.memory - 1) >> 20) + 1,
			 (unsigned long long)(limits->memory >> 20));
		return end(guard, use.memory, "memory", text);
	}
	int is_full = limits->pids > 0 && use.threads >= limits->pids;
	snprintf(text, sizeof text,
		 "the container had %llu processes and threads, which is all that com.ce.pids_limit allows: "
		 "further ones were refused",
		 (unsigned long long)limits->pids);
	note(limits, use.memory, is_full ? "pids" : NULL, text);
	return pause_for(limits, &use);
}

static int end_for_time(struct guard *guard)
{
	char text[200];

	snprintf(text, sizeof text, CE_CAUSE_LIMIT "it ran for longer than the %g s of com.ce.time_limit_s",
		 (double)guard->limits.time_ms / 1000);
	return end(guard, 0, "time", text);
}

int guard_wait_for_end(struct guard *guard)
{
	struct guard_limits *limits = &guard->limits;
	int64_t next_ms = ce_now_ms();

	/* where each task has a container, this process may have made none */
	while (limits->proc < 0) {
		if (guard_events(guard, -1) < 0)
			return -1;
	}
	limits->end_ms = limits->time_ms > 0 ? next_ms + limits->time_ms : INT64_MAX;
	for (;;) {
		int64_t now = ce_now_ms(), pause = 0;
		if (now >= limits->end_ms)
			return end_for_time(guard);
		if (now >= next_ms && (pause = look(guard)) < 0)
			return -1;
		/* from the end of a look, so that the looks at a large container do not take all time */
		if (now >= next_ms)
			next_ms = ce_now_ms() + pause;
		int64_t until = next_ms < limits->end_ms ? next_ms : limits->end_ms;
		now = ce_now_ms();
		if (guard_events(guard, until > now ? (int)(until - now) : 0) < 0)
			return -1;
	}
}
