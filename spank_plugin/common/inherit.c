#define _GNU_SOURCE
#include "inherit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

/* More than the kernel passes to a program by default, so that no job's environment is larger. */
enum { MAX_ENVIRONMENT = 32 * 1024 * 1024, MAX_STAT = 4096 };
/* Steps of the walk to the first process. Those that are repeated count, too, so that it has an end. */
enum { MAX_STEPS = 10000 };

/* An option under both of its names (inherit.h). */
#define OPTION(name, shown) { CE_INHERITED name, CE_INHERITED_PLAIN name, shown }
/* The options with a name to show ask for a container. They come first. */
static const struct {
	const char *inherited, *plain, *shown;
} options[] = { OPTION("environment", "--environment"),
		OPTION("edf", "--environment"),
		OPTION("container_image", "--container-image"),
		OPTION("container_name", "--container-name"),
		OPTION("container_mounts", NULL),
		OPTION("container_workdir", NULL),
		OPTION("container_save", NULL),
		OPTION("container_mount_home", NULL),
		OPTION("no_container_mount_home", NULL),
		OPTION("container_remap_root", NULL),
		OPTION("no_container_remap_root", NULL),
		OPTION("container_entrypoint", NULL),
		OPTION("no_container_entrypoint", NULL),
		OPTION("container_entrypoint_log", NULL),
		OPTION("container_writable", NULL),
		OPTION("container_readonly", NULL),
		OPTION("container_env", NULL),
		OPTION("container_unshare", NULL) };
enum { COUNT = sizeof options / sizeof options[0], PREFIX = sizeof "SLURM_SPANK_" - 1 };

const char *ce_inherited(const char **option)
{
	for (size_t i = 0; i < COUNT && options[i].shown != NULL; i++) {
		const char *value = getenv(options[i].inherited);
		if (value != NULL) {
			*option = options[i].shown;
			return value;
		}
	}
	return NULL;
}

/* The value of the option that was removed because of CE_INHERIT=no, on the heap; NULL for none. */
static char *left;

const char *ce_not_inherited(void)
{
	return left;
}

static void note_left(void)
{
	const char *option, *value = ce_inherited(&option);

	for (size_t i = 0; value == NULL && i < COUNT && options[i].shown != NULL; i++)
		value = getenv(options[i].plain);
	free(left);
	left = value != NULL ? strdup(value) : NULL;
}

static void forget(void)
{
	for (size_t i = 0; i < COUNT; i++) {
		unsetenv(options[i].inherited);
		unsetenv(options[i].plain);
	}
	unsetenv(CE_INHERIT);
}

/* Set the option from NAME=VALUE, under either name, and return 1; 0 for anything else. */
static int adopt(const char *entry)
{
	const char *plain = strncmp(entry, CE_INHERITED, PREFIX) == 0 ? entry + PREFIX : entry;

	for (size_t i = 0; i < COUNT; i++) {
		size_t length = strlen(options[i].plain);
		if (strncmp(plain, options[i].plain, length) == 0 && plain[length] == '=')
			return setenv(options[i].inherited, plain + length + 1, 1) == 0;
	}
	return 0;
}

/* Return whether something could not be read for want of descriptors or memory, which is no answer. Whatever
 * else cannot be read is not there, or is hidden from this user. */
static int is_want(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* Return 1 if the process was started with options, which are set now, 0 if not, -1 with errno. */
static int adopt_from(int process)
{
	size_t size = 0;
	int found = 0;
	CE_AUTO_FREE char *block = ce_read_path(process, "environ", 0, MAX_ENVIRONMENT, &size);

	if (block == NULL)
		return is_want(errno) ? -1 : 0;
	for (char *entry = block; entry < block + size; entry += strlen(entry) + 1)
		found |= adopt(entry);
	return found;
}

/* Return whether the process runs as this user. A program that changes its user on execve (sudo) belongs to
 * root, but its environment comes from its caller. */
static int is_mine(int process)
{
	struct stat st;

	return fstat(process, &st) == 0 && st.st_uid == geteuid();
}

/* Return the pid of the process's parent; 0 if there is none, or none visible from here; -1 with errno. */
static pid_t parent_of(int process)
{
	CE_AUTO_FREE char *text = ce_read_path(process, "stat", 0, MAX_STAT, NULL);
	/* PID (NAME) STATE PARENT …, and a name may contain anything */
	const char *name_end = text != NULL ? strrchr(text, ')') : NULL;
	int parent = 0;

	if (text == NULL)
		return is_want(errno) || errno == ESRCH ? -1 : 0;
	return name_end != NULL && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Open a process by its number in the mounted /proc, which may belong to another PID namespace than our
 * own. */
static int open_process(pid_t pid)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int open_self(void)
{
	return open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Go from the process to its parent, in *process: -1 if there is none to see. Return 1, or 0 if it is to be
 * tried again, as a process has ended meanwhile; -1 with errno. */
static int go_up(int *process)
{
	pid_t pid = parent_of(*process);
	CE_AUTO_FD parent = pid > 0 ? open_process(pid) : -1;

	if (pid < 0 && errno != ESRCH)
		return -1;
	if (pid > 0 && parent < 0 && is_want(errno))
		return -1;
	/* still the parent now, so the number had not been reused when it was opened */
	pid_t again = pid > 0 ? parent_of(*process) : pid;
	if (again < 0 && errno != ESRCH)
		return -1;
	if (again == pid && pid >= 0) {
		ce_close_fd(process);
		*process = ce_release_fd(&parent);
		return 1;
	}
	if (again < 0) { /* it has ended, and its children have another parent */
		ce_close_fd(process);
		*process = open_self();
	}
	return *process >= 0 ? 0 : -1;
}

/* Return 0, or -1 with errno if it is not known what an ancestor has. */
static int adopt_from_ancestors(void)
{
	CE_AUTO_FD process = open_self();
	int found = process >= 0 ? 0 : -1;

	for (int step = 0; step < MAX_STEPS && process >= 0 && found == 0; step++) {
		int moved = go_up(&process);
		if (moved < 0)
			return -1;
		if (moved > 0 && process >= 0 && is_mine(process))
			found = adopt_from(process);
	}
	if (found == 0 && process >= 0)
		errno = ELOOP;
	return found > 0 || (found == 0 && process < 0) ? 0 : -1;
}

int ce_inherit(int descends)
{
	const char *asked = getenv(CE_INHERIT), *option;

	if (asked != NULL && strcmp(asked, "no") == 0) {
		note_left();
		forget();
		return 0;
	}
	int had = ce_inherited(&option) != NULL, found = had;
	for (size_t i = 0; !had && i < COUNT; i++) {
		const char *value = getenv(options[i].plain);
		found |= value != NULL && setenv(options[i].inherited, value, 1) == 0;
	}
	return !found && descends && adopt_from_ancestors() < 0 ? -1 : 1;
}
