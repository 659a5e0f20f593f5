/*
 * ce-host: runs a program of the host inside a container, under the name by which it is called (srun, sbatch,
 * squeue …). If the libraries of such a program were mounted in the container, they would clash with the
 * image's; a container with another libc, or without one, could not run it at all. So the program gets a root
 * directory of its own: the container's, with the host's system directories in place of the image's.
 *
 * The hook mounts the required paths of the host below HOST, each at its own path: HOST/usr, HOST/etc,
 * HOST/run/munge. This program makes a user and a mount namespace and a new root with everything in the
 * container's, binds each mount below HOST to its place there, and executes the program.
 *
 * Runs as the user and has no privilege to lose. Static, as ce-init.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/error.h"
#include "common/held.h"
#include "common/inherit.h"
#include "common/io.h"
#include "common/program.h"

#define OURS "/.container-engine"
#define HOST OURS "/host"
/* where the new root is mounted: the directory of the engine's that has the symlinks to this program */
#define ROOT OURS "/slurm"


static const char *name;

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
	int reason = errno;
	va_list args;

	fprintf(stderr, "ce: error: %s: ", name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, ": %s\n", strerror(reason));
	exit(CE_EXIT_ENGINE);
}

static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *text(const char *format, ...)
{
	char *result;
	va_list args;

	va_start(args, format);
	int length = vasprintf(&result, format, args);
	va_end(args);
	if (length < 0)
		fail("out of memory");
	return result;
}

/* ---- namespaces -------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *content)
{
	CE_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || ce_write_all(fd, content, strlen(content)) < 0)
		fail("cannot write %s", path);
}

/* Return the id to map to: if the site makes users root in their containers, Slurm's programs must
 * still see the user's own id. */
static unsigned own_id(unsigned here, const char *variable)
{
	const char *value = getenv(variable);

	return here == 0 && value != NULL ? (unsigned)strtoul(value, NULL, 10) : here;
}

static void make_namespaces(void)
{
	unsigned uid = geteuid(), gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		fail("cannot make a user namespace in the container (sysctl "
		     "user.max_user_namespaces, AppArmor; ask the administrator)");
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/uid_map", text("%u %u 1", own_id(uid, "SLURM_JOB_UID"), uid));
	write_file("/proc/self/gid_map", text("%u %u 1", own_id(gid, "SLURM_JOB_GID"), gid));
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		fail("cannot make a mount namespace");
}

/* ---- the root ---------------------------------------------------------------------------------- */

/* Create a directory or a file, whichever `source` is, and its parent directories. */
static int make_place(const char *source, const char *target)
{
	struct stat st;

	if (stat(source, &st) < 0 || ce_make_parents(target, 0755) < 0)
		return -1;
	if (S_ISDIR(st.st_mode))
		return mkdir(target, 0755) < 0 && errno != EEXIST ? -1 : 0;
	CE_AUTO_FD fd = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? -1 : 0;
}

static int bind_at(const char *source, const char *target)
{
	/* recursively, because below it there may be mounts that a user namespace cannot uncover */
	return make_place(source, target) < 0 ||
			       mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0
		       ? -1
		       : 0;
}

static void take_entry(const char *entry)
{
	char link[PATH_MAX];
	char *path = text("/%s", entry), *target = text(ROOT "/%s", entry);
	struct stat st;

	if (lstat(path, &st) < 0)
		return;
	ssize_t length = S_ISLNK(st.st_mode) ? readlink(path, link, sizeof link - 1) : -1;
	if (length >= 0) {
		link[length] = '\0';
		if (symlink(link, target) < 0)
			fail("cannot make %s", path);
	} else if ((S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) && bind_at(path, target) < 0) {
		fail("cannot mount %s", path);
	}
}

/* Return whether something is mounted there. A bind mount within one file system goes unnoticed, but none of
 * the paths checked here is one. */
static int is_mount(const char *path, const char *above)
{
	struct stat a, b;

	return stat(path, &a) == 0 && stat(above, &b) == 0 && a.st_dev != b.st_dev;
}

/* Return whether this entry comes from the host: one of the host's system directories, or a file system of
 * the host, unless the container has mounted something else under that name. HOST/var, for instance, is not a
 * mount of the hook, but contains one. */
static int is_hosts(const char *entry)
{
	static const char *const systems[] = { "usr", "etc", "bin", "sbin", "lib", "lib64" };

	if (!is_mount(text(HOST "/%s", entry), HOST))
		return 0;
	for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
		if (strcmp(entry, systems[i]) == 0)
			return 1;
	}
	return !is_mount(text("/%s", entry), "/");
}

/* Take the container's top-level entries, except those that come from the host. */
static void take_container(void)
{
	CE_AUTO_DIR *dir = opendir("/");
	const char *entry;

	if (dir == NULL)
		fail("cannot read /");
	while ((entry = ce_next_name(dir)) != NULL) {
		if (strcmp(entry, OURS + 1) != 0 && !is_hosts(entry))
			take_entry(entry);
	}
}

static int is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return length > 0 && strncmp(path, directory, length) == 0 && path[length] == '/';
}

enum { MAX_POINTS = 128 };
static char *points[MAX_POINTS];
static size_t point_count;

static void note_point(char *point)
{
	ce_unescape_mount(point);
	/* a mount below the last one is bound together with it */
	if (!is_below(point, HOST) ||
	    (point_count > 0 && is_below(point, points[point_count - 1])))
		return;
	if (point_count == MAX_POINTS)
		fail("more than %d mounts of the host", MAX_POINTS);
	points[point_count++] = point;
}

/* Bind the hook's mounts to the places they have on the host. */
static void take_host(void)
{
	size_t size = 0;
	char *line = NULL, *point;
	FILE *list = fopen("/proc/self/mountinfo", "re");

	if (list == NULL)
		fail("cannot read /proc/self/mountinfo");
	/* read the whole list first: the mounts made here change it */
	while (getline(&line, &size, list) > 0) {
		if (sscanf(line, "%*s %*s %*s %*s %ms", &point) == 1)
			note_point(point);
	}
	free(line);
	fclose(list);
	for (size_t i = 0; i < point_count; i++) {
		const char *path = points[i] + strlen(HOST);
		if (strchr(path + 1, '/') == NULL && !is_hosts(path + 1))
			continue;
		/* a read-only container may lack a place for one: a program that needs
		 * the directory reports that */
		(void)bind_at(points[i], text(ROOT "%s", path));
	}
}

static void enter_root(void)
{
	char *here = getcwd(NULL, 0);

	if (mount("tmpfs", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0)
		fail("cannot mount a tmpfs on " ROOT);
	take_container();
	take_host();
	/* the usual way to leave nothing of the old root behind: stack the two roots, unmount the upper
	 * one */
	if (chdir(ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0)
		fail("cannot enter the new root");
	if (here == NULL || chdir(here) < 0)
		(void)!chdir("/");
}

/* ---- the program ------------------------------------------------------------------------------- */

static char *find_program(const char *path)
{
	char *list = text("%s", path);

	for (char *dir = strtok(list, ":"); dir != NULL; dir = strtok(NULL, ":")) {
		char *candidate = text("%s/%s", dir, name);
		if (access(candidate, X_OK) == 0)
			return candidate;
	}
	fprintf(stderr, "ce: error: %s: the host has no such program in %s\n", name, path);
	exit(CE_EXIT_NOT_FOUND);
}

/* Give the variables that the image has decided the values that they have in the job. */
static void leave_image(void)
{
	char *variable;

	for (char **entry = environ; *entry != NULL;) {
		if (sscanf(*entry, CE_OF_CONTAINER "%m[^=]", &variable) != 1) {
			entry++;
			continue;
		}
		const char *value = getenv(variable), *decided = strchr(*entry, '=') + 1;
		char *ours = text(CE_OF_CONTAINER "%s", variable), *jobs = text(CE_OF_JOB "%s", variable);
		const char *before = getenv(jobs);
		if (value != NULL && strcmp(value, decided) == 0 &&
		    (before != NULL ? setenv(variable, before, 1) : unsetenv(variable)) < 0)
			fail("out of memory");
		unsetenv(ours);
		unsetenv(jobs);
		entry = environ;
	}
}

/* Keep from the program what chooses the code of programs in the container. srun, sbatch and salloc take it
 * back for the tasks, when they have loaded the plugin; the others have no tasks. */
static void hold(const char *path)
{
	const char *own = getenv("PATH");

	if ((own != NULL && setenv(CE_HELD "PATH", own, 1) < 0) || setenv("PATH", path, 1) < 0 ||
	    ce_hold(environ) < 0)
		fail("out of memory");
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	name = argc > 0 ? ce_base_name(argv[0]) : "ce-host";
	if (access(HOST, F_OK) < 0) {
		fprintf(stderr, "ce: error: %s: works in containers with the hook 'slurm' only\n", name);
		return CE_EXIT_ENGINE;
	}
	/* do this first: from the new namespaces, the environments of the container's
	 * processes are not readable */
	if (getenv(CE_INHERIT) == NULL && ce_inherit(1) < 0)
		fail("cannot look for the environment of the job");
	make_namespaces();
	enter_root();
	const char *set = getenv("CE_HOST_PATH");
	char *path = text("%s", set != NULL ? set : "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
	char *program = find_program(path);
	leave_image();
	hold(path);
	execv(program, argv);
	fail("cannot execute %s", program);
}
