#define _GNU_SOURCE
#include "sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Check the mount namespace again once the pidfd is open: if the process is still in it, the pidfd refers to
 * that process, even if the number is reused afterwards. */
static int kill_one(int proc, const char *name, const struct stat *namespace)
{
	char *end;
	long pid = strtol(name, &end, 10);

	if (*end != '\0' || pid <= 1 || !lives_there(proc, name, namespace))
		return 0;
	CE_AUTO_FD pidfd = ce_pidfd_open((pid_t)pid);
	if (pidfd < 0 || !lives_there(proc, name, namespace))
		return 0;
	return ce_pidfd_kill(pidfd, SIGKILL) == 0;
}

static int pass(const struct stat *namespace)
{
	DIR *dir = opendir("/proc");
	int killed = 0;

	if (dir == NULL)
		return 0;
	for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
		killed += kill_one(dirfd(dir), entry->d_name, namespace);
	closedir(dir);
	return killed;
}

int ce_sweep(int mount_ns)
{
	struct stat container, own;
	int total = 0;

	/* never the host's namespace, whatever the descriptor is */
	if (fstat(mount_ns, &container) < 0 || stat("/proc/self/ns/mnt", &own) < 0 ||
	    same(&container, &own))
		return 0;
	for (int i = 0; i < MAX_PASSES; i++) {
		int killed = pass(&container);
		if (killed == 0)
			break;
		total += killed;
	}
	return total;
}
