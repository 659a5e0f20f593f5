#define _GNU_SOURCE
#include "inherit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

/* More than the kernel passes to a program by default, so that no job's environment is larger. */
enum { MAX_ENVIRONMENT = 32 * 1024 * 1024, MAX_STAT = 4096 };

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

static int adopt_from(int process)
{
	size_t size = 0;
	int found = 0;
	CE_AUTO_FREE char *block = ce_read_path(process, "environ", 0, MAX_ENVIRONMENT, &size);

	for (char *entry = block; entry != NULL && entry < block + size; entry += strlen(entry) + 1)
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

/* Return the pid of the process's parent; 0 if there is none, or none visible from here. */
static pid_t parent_of(int process)
{
	CE_AUTO_FREE char *text = ce_read_path(process, "stat", 0, MAX_STAT, NULL);
	/* PID (NAME) STATE PARENT …, and a name may contain anything */
	const char *name_end = text != NULL ? strrchr(text, ')') : NULL;
	int parent = 0;

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

static void adopt_from_ancestors(void)
{
	CE_AUTO_FD process = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pid_t pid;

	while (process >= 0 && (pid = parent_of(process)) > 0) {
		CE_AUTO_FD parent = open_process(pid);
		/* still the parent now, so the number had not been reused when it was opened */
		if (parent_of(process) != pid)
			continue;
		if (parent >= 0 && is_mine(parent) && adopt_from(parent))
			return;
		ce_close_fd(&process);
		process = parent;
		parent = -1;
	}
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
	if (!found && descends)
		adopt_from_ancestors();
	return 1;
}
