#define _GNU_SOURCE
#include "kill_container.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

typedef int is_among_fn(int proc, const char *pid, const struct stat *namespace);

/* Kill the process if it is in the namespace; return whether it was killed. Check this again once the pidfd
 * is open: if the process is still in the namespace, the pidfd refers to that process, even if the pid is
 * reused afterwards. */
static int kill_one(int proc, const char *name, is_among_fn *is_among, const struct stat *namespace)
{
	char *end;
	long pid = strtol(name, &end, 10);

	/* A process that may not be sent a signal cannot be killed. Most of a node's processes are the
	 * system's, and looking up the namespace of each takes far longer than asking the kernel for this. */
	if (*end != '\0' || pid <= 1 || kill((pid_t)pid, 0) < 0 || !is_among(proc, name, namespace))
		return 0;
	CE_AUTO_FD pidfd = ce_pidfd_open((pid_t)pid);
	if (pidfd < 0 || !is_among(proc, name, namespace))
		return 0;
	return ce_pidfd_kill(pidfd, SIGKILL) == 0;
}

static int pass(is_among_fn *is_among, const struct stat *namespace)
{
	CE_AUTO_DIR *dir = opendir("/proc");
	const char *name;
	int killed = 0;

	while (dir != NULL && (name = ce_next_name(dir)) != NULL)
		killed += kill_one(dirfd(dir), name, is_among, namespace);
	return killed;
}

static int kill_all(is_among_fn *is_among, const struct stat *namespace)
{
	int total = 0;

	for (int i = 0; i < MAX_PASSES; i++) {
		int killed = pass(is_among, namespace);
		if (killed == 0)
			break;
		total += killed;
	}
	return total;
}

int ce_kill_container(int mount_ns)
{
	struct stat container, own;

	/* never the host's namespace, whatever the descriptor is */
	if (fstat(mount_ns, &container) < 0 || stat("/proc/self/ns/mnt", &own) < 0 ||
	    same(&container, &own))
		return 0;
	return kill_all(lives_there, &container);
}

int ce_kill_session(int user_ns)
{
	struct stat parent, own;

	/* never the containers of other sessions, whose user namespaces also have the host's as their parent,
	 * whatever the descriptor is */
	if (parent_of(user_ns, &parent) < 0 || stat("/proc/self/ns/user", &own) < 0 || same(&parent, &own))
		return 0;
	return kill_all(lives_below, &parent);
}
