#define _GNU_SOURCE
#include "kill_container.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "io.h"

enum { MAX_PASSES = 10 };

static int same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int lives_there(int proc, const char *pid, const struct stat *namespace)
{
	char path[64];
	struct stat st;

	if (snprintf(path, sizeof path, "%s/ns/mnt", pid) >= (int)sizeof path)
		return 0;
	return fstatat(proc, path, &st, 0) == 0 && same(&st, namespace);
}

/* Find the parent of a user namespace. Return 0, or -1 with errno. */
static int parent_of(int user_ns, struct stat *parent)
{
	CE_AUTO_FD fd = ioctl(user_ns, NS_GET_PARENT);

	return fd < 0 ? -1 : fstat(fd, parent);
}

/* Return whether the process is in a user namespace that has this parent. */
static int lives_below(int proc, const char *pid, const struct stat *parent)
{
	char path[64];
	struct stat found;

	if (snprintf(path, sizeof path, "%s/ns/user", pid) >= (int)sizeof path)
		return 0;
	CE_AUTO_FD user_ns = openat(proc, path, O_RDONLY | O_CLOEXEC);
	return user_ns >= 0 && parent_of(user_ns, &found) == 0 && same(&found, parent);
}

/* The processes to kill: those that `is_among` finds for the namespace, without ours if they are spared. */
struct wanted {
	int (*is_among)(int proc, const char *pid, const struct stat *namespace);
	struct stat namespace;
	int spares;
};

static int is_spared(int proc, const char *pid)
{
	char path[64];

	if (snprintf(path, sizeof path, "%s/comm", pid) >= (int)sizeof path)
		return 0;
	CE_AUTO_FREE char *name = ce_read_path(proc, path, 0, 32, NULL);
	return name != NULL && (strcmp(name, ".ce-init\n") == 0 || strcmp(name, "ce-enter\n") == 0);
}

/* Kill the process if it is wanted; return whether it was killed. Check its namespace again once the pidfd is
 * open: if it is still the same, the pidfd refers to that process, even if the pid is reused afterwards. */
static int kill_one(int proc, const char *name, const struct wanted *wanted)
{
	char *end;
	long pid = strtol(name, &end, 10);

	/* A process that may not be sent a signal cannot be killed. Most of a node's processes are the
	 * system's, and looking up the namespace of each takes far longer than asking the kernel for this. */
	if (*end != '\0' || pid <= 1 || kill((pid_t)pid, 0) < 0 ||
	    !wanted->is_among(proc, name, &wanted->namespace) ||
	    (wanted->spares && is_spared(proc, name)))
		return 0;
	CE_AUTO_FD pidfd = ce_pidfd_open((pid_t)pid);
	if (pidfd < 0 || !wanted->is_among(proc, name, &wanted->namespace))
		return 0;
	return ce_pidfd_kill(pidfd, SIGKILL) == 0;
}

static int pass(const struct wanted *wanted)
{
	CE_AUTO_DIR *dir = opendir("/proc");
	const char *name;
	int killed = 0;

	while (dir != NULL && (name = ce_next_name(dir)) != NULL)
		killed += kill_one(dirfd(dir), name, wanted);
	return killed;
}

int ce_kill_container(int namespace, int spares)
{
	int is_user = ioctl(namespace, NS_GET_NSTYPE) == CLONE_NEWUSER, total = 0, killed = 1;
	struct wanted wanted = { is_user ? lives_below : lives_there, .spares = spares };
	struct stat own;

	/* never the host, nor the containers of other sessions, whatever the descriptor is */
	if ((is_user ? parent_of(namespace, &wanted.namespace) : fstat(namespace, &wanted.namespace)) < 0 ||
	    stat(is_user ? "/proc/self/ns/user" : "/proc/self/ns/mnt", &own) < 0 ||
	    same(&wanted.namespace, &own))
		return 0;
	for (int i = 0; i < MAX_PASSES && killed > 0; i++) {
		killed = pass(&wanted);
		total += killed;
	}
	return total;
}
