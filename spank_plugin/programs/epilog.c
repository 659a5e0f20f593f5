/*
 * epilog: kills and removes what is left of a job's containers on this node. Add it to Epilog= in slurm.conf,
 * or call it from the site's own epilog. Slurm starts it as root with SLURM_JOB_ID and SLURM_JOB_UID.
 *
 * Ordinarily no process is left: all of a container is in its step, which Slurm ends. The exception is a
 * killed slurmstepd: the tasks' first processes were killed with it, but what those had started lives on.
 * Only processes are killed that are in a cgroup of this job or have its id in their environment, AND whose
 * root file system is an overlay of ours; other jobs, and this job's processes outside containers, are left
 * to Slurm. Likewise, the image store of a step with EDF_IMAGESTORE=void is left if srun and the process that
 * waits for its end were killed together. It is removed on the host where srun ran, which the store's file
 * `owner` identifies by its boot id.
 *
 * The records of hooks, such as how a step's ssh servers are reached, are left in the user's cache
 * directory if the process that removes them was killed, too. This node's are removed here.
 *
 * What containers that live with their job have written is also removed, below /tmp, or below the directory
 * that is the only argument, the site's kept_dir (container_engine/node/job_containers/directory.py), and so
 * are the copies of the job's images in /dev/shm (container_engine/tools/staging.py).
 *
 * Steps of a heterogeneous job have the id of its first component in SLURM_JOB_ID, on the nodes of the other
 * components as well, where only epilogs with another id are called. They also remove what is under that id,
 * if the first component has no process on the node.
 *
 * Children that become the user, without execve, do all of this: users control their processes' environments,
 * and can also make reading them block. The kernel lets no process trace such a child, and its user can harm
 * no other user through it. A child holds nothing of slurmd's, so slurmd does not wait for it. The first one
 * ends processes, removes image stores and records, and has three seconds; the second one removes what
 * containers have written, and has ten. Root itself looks at nothing of the user's, which might never answer.
 * The exit code is 0 in any case: a failing epilog would drain the node.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/become_user.h"
#include "common/io.h"
#include "common/program.h"
#include "common/remove_tree.h"

#define BOOT "/proc/sys/kernel/random/boot_id"

enum { LIMIT_MS = 3000, REMOVAL_MS = 10000, MAX_FILE = 16 << 20, OTHERS = 077 };

struct job {
	const char *id;
	const char *first; /* the id of a heterogeneous job's first component; NULL if there is none */
	uid_t uid;
	gid_t gid;
	const char *node; /* Slurm's name for this node; NULL if it is not set */
	const char *kept; /* the site's kept_dir */
	char home[PATH_MAX];
};

/* ---- processes --------------------------------------------------------------------------------- */

/* Return whether Slurm has put the process into a step of the job, in a cgroup that its user cannot leave. */
static int is_in_cgroup(int process, const char *id)
{
	char wanted[64];
	CE_AUTO_FREE char *text = ce_read_path(process, "cgroup", 0, MAX_FILE, NULL);

	snprintf(wanted, sizeof wanted, "/job_%s/", id);
	return text != NULL && strstr(text, wanted) != NULL;
}

/* Return whether the process has the job's id in its environment, for nodes without cgroups. */
static int has_id(int process, const char *id)
{
	static const char name[] = "SLURM_JOB_ID=";
	size_t size = 0;
	CE_AUTO_FREE char *block = ce_read_path(process, "environ", 0, MAX_FILE, &size);

	for (const char *entry = block; entry != NULL && entry < block + size; entry += strlen(entry) + 1) {
		if (strncmp(entry, name, sizeof name - 1) == 0 && strcmp(entry + sizeof name - 1, id) == 0)
			return 1;
	}
	return 0;
}

static int is_in_container(int process)
{
	CE_AUTO_FREE char *text = ce_read_path(process, "mountinfo", 0, MAX_FILE, NULL);
	char *rest = text;

	for (char *line = text != NULL ? strsep(&rest, "\n") : NULL; line != NULL;
	     line = strsep(&rest, "\n")) {
		const char *kind = strstr(line, " - overlay ");
		if (kind != NULL && strstr(line, " / / ") != NULL &&
		    strstr(kind, "/libexec/container-engine/session/") != NULL)
			return 1;
	}
	return 0;
}

/* Kill the process if it belongs to the user and is left of the job's containers. The pidfd is opened first:
 * what is then read by the pid belongs to this process, or the kill finds no process. */
static void end_if_left(int proc, const char *number, const struct job *job)
{
	struct stat st;
	CE_AUTO_FD pidfd = ce_pidfd_open((pid_t)strtol(number, NULL, 10));
	CE_AUTO_FD process = openat(proc, number, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (pidfd >= 0 && process >= 0 && fstat(process, &st) == 0 && st.st_uid == job->uid &&
	    (is_in_cgroup(process, job->id) || has_id(process, job->id)) && is_in_container(process))
		(void)ce_pidfd_kill(pidfd, SIGKILL);
}

static void end_processes(const struct job *job)
{
	CE_AUTO_DIR *dir = opendir("/proc");
	const char *name;

	while (dir != NULL && (name = ce_next_name(dir)) != NULL) {
		if (name[0] >= '1' && name[0] <= '9')
			end_if_left(dirfd(dir), name, job);
	}
}

/* Return whether Slurm has a process of the user in a step of the job on this node. */
static int is_running(const struct job *job)
{
	CE_AUTO_DIR *dir = opendir("/proc");
	const char *name;
	int found = 0;

	while (!found && dir != NULL && (name = ce_next_name(dir)) != NULL) {
		CE_AUTO_FD process = openat(dirfd(dir), name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		found = name[0] >= '1' && name[0] <= '9' && process >= 0 && is_in_cgroup(process, job->id);
	}
	return found;
}

/* ---- image stores ------------------------------------------------------------------------------ */

/* Return whether the store at `path` was made since this host's last boot, so by a process of this host. */
static int is_of_this_host(const char *path)
{
	CE_AUTO_FREE char *boot = ce_read_path(AT_FDCWD, BOOT, 0, MAX_FILE, NULL);
	CE_AUTO_FD directory = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CE_AUTO_FREE char *owner = ce_read_path(directory, "owner", 0, MAX_FILE, NULL);

	if (boot == NULL || owner == NULL)
		return 0;
	boot[strcspn(boot, "\n")] = '\0';
	return boot[0] != '\0' && strstr(owner, boot) != NULL;
}

static void remove_store(int records, const char *record)
{
	char path[PATH_MAX];
	ssize_t length = readlinkat(records, record, path, sizeof path - 1);

	path[length > 0 ? length : 0] = '\0';
	char *name = strrchr(path, '/');
	if (path[0] != '/' || strncmp(name, "/.ce-void-", 10) != 0 || !is_of_this_host(path))
		return;
	*name++ = '\0';
	CE_AUTO_FD parent = open(path[0] != '\0' ? path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	ce_remove_tree(parent, name);
	(void)unlinkat(records, record, 0);
}

static void remove_stores(const struct job *job)
{
	char path[PATH_MAX + 64], prefix[32];
	const char *name;

	if (job->home[0] != '/')
		return;
	snprintf(path, sizeof path, "%s/.local/state/container-engine/void", job->home);
	snprintf(prefix, sizeof prefix, "%s-", job->id);
	CE_AUTO_DIR *dir = opendir(path);
	while (dir != NULL && (name = ce_next_name(dir)) != NULL) {
		if (strncmp(name, prefix, strlen(prefix)) == 0)
			remove_store(dirfd(dir), name);
	}
}

/* ---- records of hooks -------------------------------------------------------------------------- */

/* Is it NODE.ENDING or its draft, NODE.ENDING.new? An ending has no dot: a file of the node "n1.cluster" is
 * not one of "n1". */
static int is_record_of(const char *name, const char *node)
{
	size_t length = strlen(node);
	const char *dot;

	if (strncmp(name, node, length) != 0 || name[length] != '.')
		return 0;
	dot = strchr(name + length + 1, '.');
	return dot == NULL || strcmp(dot, ".new") == 0;
}

static void remove_records_of_step(int parent, const char *step, const char *node)
{
	int fd = openat(parent, step, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CE_AUTO_DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const char *name;

	if (fd >= 0 && dir == NULL)
		close(fd);
	while (dir != NULL && (name = ce_next_name(dir)) != NULL) {
		if (is_record_of(name, node))
			(void)unlinkat(dirfd(dir), name, 0);
	}
	/* if other nodes have none there any more */
	(void)unlinkat(parent, step, AT_REMOVEDIR);
}

static void remove_records_of_job(const char *place, const struct job *job)
{
	char path[PATH_MAX + NAME_MAX + 128];
	const char *step;

	snprintf(path, sizeof path, "%s/%s", place, job->id);
	CE_AUTO_DIR *dir = opendir(path);
	while (dir != NULL && (step = ce_next_name(dir)) != NULL) {
		if (step[0] != '.')
			remove_records_of_step(dirfd(dir), step, job->node);
	}
	(void)rmdir(path);
}

/* HOOK/JOB/STEP/NODE.ENDING, whatever hooks there are */
static void remove_records(const struct job *job)
{
	char path[PATH_MAX + 64], place[PATH_MAX + NAME_MAX + 64];
	const char *hook;

	if (job->home[0] != '/' || job->node == NULL)
		return;
	snprintf(path, sizeof path, "%s/.cache/container-engine/hooks", job->home);
	CE_AUTO_DIR *dir = opendir(path);
	while (dir != NULL && (hook = ce_next_name(dir)) != NULL) {
		if (hook[0] == '.')
			continue;
		snprintf(place, sizeof place, "%s/%s", path, hook);
		remove_records_of_job(place, job);
	}
}

/* ---- containers that lived with the job -------------------------------------------------------- */

static int is_kept_by(const char *name, const struct job *job)
{
	size_t length = strlen(job->id);

	if (strncmp(name, job->id, length) != 0 || name[length] != '.')
		return 0;
	/* a file that arrives has the same name on all nodes, with a second dot */
	return job->node == NULL || name[length + 1] == '.' || strcmp(name + length + 1, job->node) == 0;
}

/* Remove what the job has in the directory `name`, and return whether it has anything there. If another user
 * has made the directory or could enter it, leave it alone: anything of this user's may have been moved into
 * it, to be removed. */
static int remove_below(int parent, const char *name, const struct job *job)
{
	int fd = ce_open_own(parent, name, job->uid, OTHERS), found = 0;
	CE_AUTO_DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const char *container;

	while (dir != NULL && (container = ce_next_name(dir)) != NULL) {
		if (!is_kept_by(container, job))
			continue;
		ce_remove_tree(dirfd(dir), container);
		found = 1;
	}
	return found;
}

/* Remove what the job's containers have written. If another user took the name of the user's directory first,
 * the job has one with a suffix (container_engine/node/job_containers/directory.py); that belongs to the job
 * alone and is removed with it. The directory without a suffix comes first, because others with such names,
 * if they are not the user's, may not answer. */
static void remove_kept_in(const char *place, const struct job *job)
{
	char own[64];
	const char *name;
	int length = snprintf(own, sizeof own, "ce-kept-%u", (unsigned)job->uid);
	CE_AUTO_DIR *dir = opendir(place);

	if (dir == NULL)
		return;
	(void)remove_below(dirfd(dir), own, job);
	while ((name = ce_next_name(dir)) != NULL) {
		if (strncmp(name, own, (size_t)length) != 0 || name[length] != '.')
			continue;
		if (remove_below(dirfd(dir), name, job))
			(void)unlinkat(dirfd(dir), name, AT_REMOVEDIR);
	}
}

static void remove_kept_as(const struct job *job)
{
	remove_kept_in("/dev/shm", job);
	remove_kept_in(job->kept, job);
}

/* ---- the child --------------------------------------------------------------------------------- */

/* Return the job under the id that its steps have: that of the first component of a heterogeneous job, unless
 * that runs here: then its own epilog follows. Else return the job itself. */
static struct job job_of_steps(const struct job *job)
{
	struct job first = *job;

	first.id = job->first != NULL ? job->first : job->id;
	return is_running(&first) ? *job : first;
}

static void end_what_is_left(const struct job *job)
{
	struct job first = job_of_steps(job);

	end_processes(job);
	remove_stores(job);
	remove_records(job);
	if (first.id != job->id) {
		remove_stores(&first);
		remove_records(&first);
	}
}

static void remove_kept(const struct job *job)
{
	struct job first = job_of_steps(job);

	remove_kept_as(job);
	if (first.id != job->id)
		remove_kept_as(&first);
}

/* Do the work as the user; never return. */
static void be_child(const struct job *job, void (*work)(const struct job *job))
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	for (int fd = 0; fd < 3; fd++) {
		if (null < 0 || dup2(null, fd) < 0)
			_exit(1);
	}
	if (close_range(3, ~0U, 0) < 0 || chdir("/") < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    ce_become_user(job->uid, job->gid) != NULL)
		_exit(1);
	work(job);
	_exit(0);
}

static void run_child(const struct job *job, void (*work)(const struct job *job), int limit_ms)
{
	pid_t pid = fork();

	if (pid == 0)
		be_child(job, work);
	CE_AUTO_FD child = pid > 0 ? ce_pidfd_open(pid) : -1;
	/* wait on the pidfd with a limit: even if the child hangs, this process ends */
	if (child >= 0 && !ce_wait_readable(child, ce_now_ms() + limit_ms))
		(void)ce_pidfd_kill(child, SIGKILL);
}

static int read_job(struct job *job)
{
	const char *uid = getenv("SLURM_JOB_UID"), *gid = getenv("SLURM_JOB_GID");
	char *end;

	job->id = getenv("SLURM_JOB_ID");
	job->first = getenv("SLURM_HET_JOB_ID");
	if (job->id == NULL || job->id[0] == '\0' || strlen(job->id) > 16 || uid == NULL)
		return -1;
	/* 0: this is no component */
	if (job->first != NULL && (strtoul(job->first, NULL, 10) == 0 || strlen(job->first) > 16))
		job->first = NULL;
	job->uid = (uid_t)strtoul(uid, &end, 10);
	if (end == uid || *end != '\0')
		return -1;
	job->gid = gid != NULL ? (gid_t)strtoul(gid, NULL, 10) : 65534;
	const struct passwd *entry = getpwuid(job->uid);
	snprintf(job->home, sizeof job->home, "%s", entry != NULL ? entry->pw_dir : "");
	return 0;
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	struct job job = { .node = getenv("SLURMD_NODENAME"), .kept = argc > 1 ? argv[1] : "/tmp" };

	ce_default_signals();
	if (read_job(&job) < 0)
		return 0;
	run_child(&job, end_what_is_left, LIMIT_MS);
	run_child(&job, remove_kept, REMOVAL_MS);
	return 0;
}
