#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "guard.h"
#include "guard_ops.h"
#include "guard_walk.h"

#define NAME_OF_COPY "crun"

/* Open a program, found along PATH as execvp does. Return -1 if there is none. */
static int open_program(const char *name)
{
	char path[PATH_MAX];
	const char *rest = strchr(name, '/') != NULL ? "" : getenv("PATH");

	for (size_t length = 0; rest != NULL; rest = rest[length] == ':' ? rest + length + 1 : NULL) {
		length = strcspn(rest, ":");
		snprintf(path, sizeof path, "%.*s%s%s", (int)length, rest, length > 0 ? "/" : "", name);
		if (access(path, X_OK) == 0)
			return open(path, O_RDONLY | O_CLOEXEC);
	}
	return -1;
}

/* Return whether the file is an ELF program. A script cannot be executed from a copy: its interpreter opens
 * it by its path. */
static int is_binary(int file)
{
	char magic[SELFMAG];

	return pread(file, magic, SELFMAG, 0) == SELFMAG && memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/* Return a descriptor of a sealed copy of a program in memory; -1 if that cannot be made: execvp then reports
 * what is wrong with the program. crun never runs from its own file, which a container might write to.
 * Without this copy it would copy itself, and be loaded and linked twice. */
static int sealed_copy(const char *name)
{
	struct stat found;
	CE_AUTO_FD program = open_program(name);
	int is_copied = program >= 0 && is_binary(program);
	CE_AUTO_FD copy = is_copied ? memfd_create("crun", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;

	if (copy < 0 || fstat(program, &found) < 0)
		return -1;
	for (off_t left = found.st_size; left > 0;) {
		ssize_t n = sendfile(copy, program, NULL, (size_t)left);
		if (n <= 0)
			return -1;
		left -= n;
	}
	if (fcntl(copy, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -1;
	return ce_release_fd(&copy);
}

int guard_op_create(struct guard *guard, char **args)
{
	if (strcmp(guard->stage, "podman") == 0)
		return guard_run(guard, "Podman", args, NULL, guard->log);
	char place[64];
	CE_AUTO_FD copy = sealed_copy(args[0]);
	/* Execute the copy through a symlink in the session's directory, so that ps shows this name. Executed
	 * by its descriptor, it would be called by a number. */
	snprintf(place, sizeof place, "/proc/self/fd/%d", copy);
	int is_named = copy >= 0 && (unlink(NAME_OF_COPY) == 0 || errno == ENOENT) &&
		       symlink(place, NAME_OF_COPY) == 0;
	return guard_run(guard, "crun", args, is_named ? NAME_OF_COPY : NULL, guard->log);
}

static int read_pid(struct guard *guard, const char *path, pid_t *pid)
{
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, path, 0, 64, NULL);
	long value = text != NULL ? strtol(text, NULL, 10) : 0;

	if (value <= 1)
		return guard_fail(guard, "the process ID of the container's init is not known");
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

/* Return whether the environment can be read already. In execve the kernel sets a process's new name first,
 * and for a moment the environment reads as empty. Later it is not, because the runtime always sets
 * variables. */
static int has_environment(int process_dir)
{
	char first;
	CE_AUTO_FD fd = openat(process_dir, "environ", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, &first, 1) == 1;
}

/* Wait for execve: the runtime can return before the container's first process has called it, and until
 * then its environment is the runtime's. An entrypoint runs before that, for as long as it needs: the
 * launcher enforces the deadline. */
static int wait_for_init(struct guard *guard, int process_dir, const char *name)
{
	for (int pause = 0;; pause = pause < 20 ? pause + 1 : 20) {
		if (has_name(process_dir, name) && has_environment(process_dir))
			return 0;
		if (guard_events(guard, pause) < 0)
			return -1;
	}
}

/* Check that the tasks' working directory exists in the container. Whatever else may be wrong with it, the
 * tasks find out. */
static int check_workdir(struct guard *guard, int process_dir, const char *path)
{
	CE_AUTO_FD root = openat(process_dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CE_AUTO_FD dir = root < 0 ? -1 : guard_open_in_root(root, path, O_PATH | O_DIRECTORY);

	if (root < 0 || dir >= 0 || (errno != ENOENT && errno != ENOTDIR))
		return 0;
	guard->stage = "workdir";
	return guard_fail(guard, "workdir '%s'", path);
}

int guard_op_container(struct guard *guard, char **args)
{
	char path[64];
	pid_t pid = -1;

	if (read_pid(guard, args[0], &pid) < 0)
		return -1;
	/* From here on the pidfd identifies the process: the pid is not used after it could have been reused,
	 * because the directory opened below is dead if the process is. */
	guard->init = ce_pidfd_open(pid);
	if (guard->init < 0)
		return guard_fail(guard, "the container's init process ended");
	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	CE_AUTO_FD process_dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process_dir < 0)
		return guard_fail(guard, "the container's init process ended");
	if (wait_for_init(guard, process_dir, args[1]) < 0)
		return -1;
	if (args[2] != NULL && check_workdir(guard, process_dir, args[2]) < 0)
		return -1;
	guard->has_pids = args[2] != NULL && args[3] != NULL;
	if (guard_limits_begin(guard, process_dir, pid) < 0)
		return -1;
	return guard_report_ready(guard, process_dir);
}
