#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"
#include "io.h"

#define SERVER "squashfuse_ll"

/* session SIZE DIR: the mount namespace, our tmpfs over DIR, the host's /proc kept at DIR/proc, a
 * /proc of our own. */
static int op_session(struct guard *guard, char **args)
{
	CE_AUTO_FREE char *options = NULL, *host_proc = NULL;

	guard->session = args[1];
	if (asprintf(&options, "mode=0755,size=%s", args[0]) < 0 ||
	    asprintf(&host_proc, "%s/proc", args[1]) < 0)
		return guard_fail(guard, "out of memory");
	/* slave, not private: what the host mounts later (autofs, a new file system) still arrives */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return guard_fail(guard, "cannot make a mount namespace");
	if (mount("tmpfs", args[1], "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
		return guard_fail(guard, "cannot mount a tmpfs on '%s'", args[1]);
	if (mkdir(host_proc, 0555) < 0 ||
	    mount("/proc", host_proc, NULL, MS_BIND | MS_REC, NULL) < 0)
		return guard_fail(guard, "cannot keep the host's /proc");
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return guard_fail(guard, "cannot mount /proc in the user namespace");
	/* gives Podman a short name for the directory: /proc/1/cwd */
	return chdir(args[1]) == 0 ? 0 : guard_fail(guard, "cannot change to '%s'", args[1]);
}

static int op_dir(struct guard *guard, char **args)
{
	return mkdir(args[0], 0755) == 0 ? 0 : guard_fail(guard, "cannot make '%s'", args[0]);
}

static int op_file(struct guard *guard, char **args)
{
	CE_AUTO_FD fd = open(args[0], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || ce_write_all(fd, args[1], strlen(args[1])) < 0)
		return guard_fail(guard, "cannot write '%s'", args[0]);
	return 0;
}

static int op_environment(struct guard *guard, char **args)
{
	return setenv(args[0], args[1], 1) == 0 ? 0 : guard_fail(guard, "out of memory");
}

static int start_server(struct guard *guard, const char *image, int device)
{
	char target[32];

	/* libfuse takes an open device as
	 * /dev/fd/N, so that no setuid fusermount is needed. */
	snprintf(target, sizeof target, "/dev/fd/%d", device);
	const char *const argv[] = { SERVER, "-f", image, target, NULL };
	pid_t pid = guard_spawn(guard, argv, device);
	if (pid < 0)
		return -1;
	guard->fuse[guard->fuse_count++] = pid;
	return 0;
}

/* fuse IMAGE DIR: the SquashFS file served at DIR, by a process outside every container. */
static int op_fuse(struct guard *guard, char **args)
{
	char options[96];

	if (guard->fuse_count == GUARD_MAX_FUSE) {
		errno = 0;
		return guard_fail(guard, "more than %d SquashFS files in one container",
				  GUARD_MAX_FUSE);
	}
	CE_AUTO_FD device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return guard_fail(guard, "cannot open /dev/fuse");
	/* allow_other lets in the processes of this user namespace and of those below it, no others */
	snprintf(options, sizeof options,
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
	if (mkdir(args[1], 0755) < 0 ||
	    mount(args[0], args[1], "fuse." SERVER, MS_NOSUID | MS_NODEV | MS_RDONLY, options) < 0)
		return guard_fail(guard, "cannot mount a FUSE file system");
	return start_server(guard, args[0], device);
}

/* Waits until the kernel and the FUSE server have met: a server that cannot read the file ends, and
 * what it printed is the cause, where a later access would only say ENOTCONN. */
static int check_server(struct guard *guard, const char *dir)
{
	struct stat st;

	if (stat(dir, &st) == 0)
		return 0;
	for (int i = 0; i < 20; i++) {
		if (guard_events(guard, 10) < 0)
			return -1;
	}
	errno = 0;
	return guard_fail(guard, "the SquashFS file cannot be read: it is damaged");
}

/* overlay LOWER UPPER WORK DIR: the writable view of the image */
static int op_overlay(struct guard *guard, char **args)
{
	CE_AUTO_FREE char *options = NULL;

	if (check_server(guard, args[0]) < 0)
		return -1;
	if (asprintf(&options, "lowerdir=%s,upperdir=%s,workdir=%s,userxattr", args[0], args[1],
		     args[2]) < 0)
		return guard_fail(guard, "out of memory");
	for (size_t i = 1; i < 4; i++) {
		if (mkdir(args[i], 0755) < 0)
			return guard_fail(guard, "cannot make '%s'", args[i]);
	}
	/* nosuid and nodev: the image is the user's, its setuid bits and devices mean nothing here */
	if (mount("overlay", args[3], "overlay", MS_NOSUID | MS_NODEV, options) < 0)
		return guard_fail(guard, "cannot mount the image's overlay");
	return 0;
}

/* served DIR: a further SquashFS file is readable */
static int op_served(struct guard *guard, char **args)
{
	return check_server(guard, args[0]);
}

static int op_root_dir(struct guard *guard, char **args)
{
	return guard_make_root_dir(guard, args[0], args[1]);
}

static int op_root_entry(struct guard *guard, char **args)
{
	return guard_make_root_entry(guard, args[0], args[1], args[2], args[3]);
}

/* podman ARG…: runs Podman and waits for it */
static int op_podman(struct guard *guard, char **args)
{
	int status = 0;
	pid_t pid = guard_spawn(guard, (const char *const *)args, -1);

	if (pid < 0 || guard_wait(guard, pid, &status) < 0)
		return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	errno = 0;
	if (WIFSIGNALED(status))
		return guard_fail(guard, "Podman was killed by signal %d", WTERMSIG(status));
	return guard_fail(guard, "Podman ended with exit code %d", WEXITSTATUS(status));
}

static int read_pid(struct guard *guard, const char *path, pid_t *pid)
{
	size_t size = 0;
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	CE_AUTO_FREE char *text = fd >= 0 ? ce_read_all(fd, 64, &size) : NULL;
	long value = text != NULL ? strtol(text, NULL, 10) : 0;

	if (value <= 1)
		return guard_fail(guard, "Podman left no process id of the container's init");
	*pid = (pid_t)value;
	return 0;
}

static int has_name(int process_dir, const char *name)
{
	char comm[32] = "";
	CE_AUTO_FD fd = openat(process_dir, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, comm, sizeof comm - 1) : -1;

	return n > 0 && strncmp(comm, name, (size_t)n - 1) == 0 && strlen(name) == (size_t)n - 1;
}

/* In execve the kernel gives a process its new name first: for a moment the environment then reads
 * as empty, which Podman never makes it. */
static int has_environment(int process_dir)
{
	char first;
	CE_AUTO_FD fd = openat(process_dir, "environ", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, &first, 1) == 1;
}

/* `podman run -d` can return before the container's first process has called execve; until then its
 * environment is the runtime's. An entrypoint runs before it, for as long as it likes: the launcher
 * has the deadline. */
static int wait_for_init(struct guard *guard, int process_dir, const char *name)
{
	for (int pause = 0;; pause = pause < 20 ? pause + 1 : 20) {
		if (has_name(process_dir, name) && has_environment(process_dir))
			return 0;
		if (guard_events(guard, pause) < 0)
			return -1;
	}
}

/* container PIDFILE NAME: waits until the container's init is the program NAME, then reports */
static int op_container(struct guard *guard, char **args)
{
	char path[64];
	pid_t pid = -1;

	if (read_pid(guard, args[0], &pid) < 0)
		return -1;
	/* From here on the pidfd stands for the process: the number is not used after it could have
	 * been given to another, because the directory opened below is dead if the process is. */
	guard->init = ce_pidfd_open(pid);
	if (guard->init < 0)
		return guard_fail(guard, "the container's init process ended");
	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	CE_AUTO_FD process_dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process_dir < 0)
		return guard_fail(guard, "the container's init process ended");
	if (wait_for_init(guard, process_dir, args[1]) < 0)
		return -1;
	return guard_report_ready(guard, process_dir);
}

static const struct operation {
	const char *name;
	long least_args;
	int (*run)(struct guard *, char **);
} operations[] = {
	{ "session", 2, op_session },	      { "dir", 1, op_dir },
	{ "file", 2, op_file },		      { "environment", 2, op_environment },
	{ "fuse", 2, op_fuse },		      { "overlay", 4, op_overlay },
	{ "served", 1, op_served },	      { "root-dir", 2, op_root_dir },
	{ "root-entry", 4, op_root_entry },   { "podman", 1, op_podman },
	{ "container", 2, op_container },     { "bind", 2, guard_bind },
	{ "more", 1, guard_more },	      { "note", 1, guard_note },
	{ "root-bind", 3, guard_root_bind },
	{ "root-first", 3, guard_root_first }, { "root-link", 3, guard_root_link },
};

static const struct operation *find_operation(const char *name)
{
	for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	}
	return NULL;
}

/* The string at *next, which moves behind it; NULL at the end or where no NUL ends it. */
static char *take_string(char **next, const char *end)
{
	char *string = *next;
	char *nul = string < end ? memchr(string, '\0', (size_t)(end - string)) : NULL;

	if (nul == NULL)
		return NULL;
	*next = nul + 1;
	return string;
}

static char **take_args(char **next, const char *end, long count)
{
	char **args = calloc((size_t)count + 1, sizeof *args);

	if (args == NULL)
		return NULL;
	for (long i = 0; i < count; i++) {
		args[i] = take_string(next, end);
		if (args[i] == NULL) {
			free(args);
			return NULL;
		}
	}
	return args;
}

/* The number of arguments, -1 when the text is none. */
static long read_count(const char *text)
{
	char *end;
	long count = strtol(text, &end, 10);

	return *text != '\0' && *end == '\0' ? count : -1;
}

int guard_run_operations(struct guard *guard, char *specification, size_t size)
{
	const char *end = specification + size;

	for (char *next = specification; next < end;) {
		const char *name = take_string(&next, end);
		const char *count_text = name != NULL ? take_string(&next, end) : NULL;
		long count = count_text != NULL ? read_count(count_text) : -1;
		const struct operation *op = name != NULL ? find_operation(name) : NULL;
		errno = EINVAL;
		if (op == NULL || count < op->least_args || count > (long)size)
			return guard_fail(guard, "bad operation in the specification");
		CE_AUTO_FREE char **args = take_args(&next, end, count);
		if (args == NULL)
			return guard_fail(guard, "specification cut short");
		guard->stage = op->name;
		guard_stamp(guard, op->name);
		if (op->run(guard, args) < 0)
			return -1;
	}
	return 0;
}
