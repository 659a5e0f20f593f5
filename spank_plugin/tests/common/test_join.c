#define _GNU_SOURCE
#include "common/join.h"

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "generated/help.h"
#include "harness.h"

static struct ce_error err = CE_ERROR_INIT;

/* ---- environment ------------------------------------------------------------------------------- */

static char seen[4096];

static int note(void *context, const char *name, const char *value)
{
	size_t used = strlen(seen);

	CHECK(context == seen);
	snprintf(seen + used, sizeof seen - used, "[%s]%s%s;", name, value != NULL ? "=" : "",
		 value != NULL ? value : "");
	return strcmp(name, "REFUSED") == 0 ? -1 : 0;
}

static const char *path_of_task = "/bin";

static const char *of_task(void *context, const char *name)
{
	CHECK(context == seen);
	if (strcmp(name, "PATH") == 0)
		return path_of_task;
	return strcmp(name, "SLURM_PROCID") == 0 ? "7" : NULL;
}

static const struct ce_variables variables = { note, of_task, seen };

static int apply(const char *records, size_t size)
{
	CE_AUTO_FD fd = ce_memory_file("x", records, size);

	CHECK(fd >= 0);
	/* as if another task had read it through the same open file */
	CHECK(lseek(fd, 0, SEEK_END) >= 0);
	return ce_apply_environment(fd, &variables, &err);
}

/* Return what applying the records has done. */
static const char *applied(const char *records, size_t size)
{
	CHECK_INT(apply(records, size), 0);
	return seen;
}

#define APPLIED(records) applied(records, sizeof(records))

TEST("records set and unset variables in their order")
{
	CHECK_TEXT(APPLIED("A=1\0B\0C=\0A=2"), "[A]=1;[B];[C]=;[A]=2;");
}

TEST("values keep equals signs, newlines, quotes and bytes that are not UTF-8")
{
	CHECK_TEXT(APPLIED("A==a=b\n\"'$\0B=\xff\xfe"), "[A]==a=b\n\"'$;[B]=\xff\xfe;");
}

TEST("a variable can get the value that another one has in this task")
{
	CHECK_TEXT(APPLIED("RANK=3\0=RANK=SLURM_PROCID\0A=1"), "[RANK]=3;[RANK]=7;[A]=1;");
}

TEST("the value of a variable that the task does not have, or of none, changes nothing")
{
	CHECK_TEXT(APPLIED("=RANK=OTHER\0=RANK\0=\0==\0A=1"), "[A]=1;");
}

TEST("no records change nothing")
{
	CHECK_TEXT(applied("", 0), "");
}

TEST("a task that would have no PATH gets the usual one")
{
	path_of_task = NULL;
	CHECK_TEXT(APPLIED("A=1\0PATH"),
		   "[A]=1;[PATH];[PATH]=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin;");
}

TEST("a last record without its NUL is still one")
{
	CHECK_TEXT(applied("A=1\0B=2", 7), "[A]=1;[B]=2;");
}

TEST("a variable that cannot be set ends the walk and is named")
{
	static const char records[] = "A=1\0REFUSED=x\0B=2";

	CHECK_INT(apply(records, sizeof records), -1);
	CHECK_TEXT(ce_error_text(&err), "cannot set the environment variable 'REFUSED'");
	CHECK_TEXT(seen, "[A]=1;[REFUSED]=x;");
	ce_error_clear(&err);
}

TEST("a descriptor that cannot be read is an error and nothing is set")
{
	CHECK_INT(ce_apply_environment(-1, &variables, &err), -1);
	CHECK_TEXT(ce_error_text(&err),
		   "cannot read the container's environment: Bad file descriptor");
	CHECK_TEXT(seen, "");
	ce_error_clear(&err);
}

static size_t value_length;

static int measure(void *context, const char *name, const char *value)
{
	(void)context;
	CHECK_TEXT(name, "BIG");
	value_length = strlen(value);
	return 0;
}

static const char *any_value(void *context, const char *name)
{
	(void)context;
	return name;
}

TEST("a value of 2 MiB arrives whole")
{
	enum { SIZE = 2 << 20 };
	CE_AUTO_FREE char *record = malloc(SIZE + 5);

	CHECK(record != NULL);
	memset(record, 'v', SIZE + 4);
	CHECK(memcpy(record, "BIG=", 4) == record);
	record[SIZE + 4] = '\0';
	CE_AUTO_FD fd = ce_memory_file("x", record, SIZE + 5);
	const struct ce_variables big = { measure, any_value, NULL };
	CHECK_INT(ce_apply_environment(fd, &big, &err), 0);
	CHECK_INT(value_length, SIZE);
}

/* ---- joining ----------------------------------------------------------------------------------- */

static void join_without_mounts(void)
{
	struct ce_container container = CE_CONTAINER_INIT;
	int made[2];
	char byte;

	CHECK_INT(pipe2(made, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		byte = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';
		CHECK_INT(write(made[1], &byte, 1), 1);
		pause();
		_exit(0);
	}
	CHECK_INT(read(made[0], &byte, 1), 1);
	CHECK_INT(byte, 'y');
	char *path = NULL;
	CHECK(asprintf(&path, "/proc/%d/ns/user", (int)pid) > 0);
	container.workdir = strdup("/");
	container.user_ns = open(path, O_RDONLY | O_CLOEXEC);
	container.mount_ns = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK_INT(ce_join(&container, &err), -1);
	CHECK_CONTAINS(ce_error_text(&err), "cannot enter the container's mount namespace");
	kill(pid, SIGKILL);
	_exit(0);
}

TEST("a task that cannot enter the mount namespace of its container does not run")
{
	test_needs_root();
	CHECK_INT(test_in_child(join_without_mounts), 0);
}

/* Start a process in a new user namespace, in which it is root, and a new mount namespace, and put both into
 * `container`. */
static pid_t start_container(struct ce_container *container, const char *workdir)
{
	int made[2];
	char byte, *path = NULL;

	CHECK_INT(pipe2(made, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		byte = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0
			       ? 'y'
			       : 'n';
		CHECK_INT(write(made[1], &byte, 1), 1);
		pause();
		_exit(0);
	}
	CHECK_INT(read(made[0], &byte, 1), 1);
	CHECK_INT(byte, 'y');
	static const char *const names[] = { "ns/user", "ns/mnt", "uid_map" };
	int fds[3];
	for (size_t i = 0; i < 3; i++) {
		CHECK(asprintf(&path, "/proc/%d/%s", (int)pid, names[i]) > 0);
		fds[i] = open(path, (i < 2 ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
		CHECK(fds[i] >= 0);
		free(path);
	}
	CHECK_INT(write(fds[2], "0 0 1", 5), 5);
	container->workdir = strdup(workdir);
	container->user_ns = fds[0];
	container->mount_ns = fds[1];
	return pid;
}

static void join_nowhere(void)
{
	struct ce_container container = CE_CONTAINER_INIT;
	pid_t pid = start_container(&container, "/not/there");

	CHECK_INT(ce_join(&container, &err), -1);
	CHECK_CONTAINS(ce_error_text(&err), "workdir '/not/there': cannot change to it in the container");
	kill(pid, SIGKILL);
	_exit(0);
}

static void join_as_root(void)
{
	struct ce_container container = CE_CONTAINER_INIT;
	const char *file = test_file(test_directory(), "file", "", 0644);
	pid_t pid = start_container(&container, "/");

	CHECK_INT(ce_join(&container, &err), 0);
	CHECK_INT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	CHECK_INT(geteuid(), 0);
	/* the namespace has no such user, so this would fail without the filter */
	CHECK_INT(chown(file, 4711, 4711), 0);
	kill(pid, SIGKILL);
	_exit(0);
}

TEST("a task that cannot enter its working directory does not run")
{
	test_needs_root();
	CHECK_INT(test_in_child(join_nowhere), 0);
}

TEST("root of a container has the filter for calls that change owners, and gains no privileges")
{
	test_needs_root();
	CHECK_INT(test_in_child(join_as_root), 0);
}

TEST("descriptors that are no namespaces are refused in words")
{
	struct ce_container container = CE_CONTAINER_INIT;

	container.workdir = strdup("/");
	container.user_ns = open("/dev/null", O_RDONLY | O_CLOEXEC);
	container.mount_ns = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK_INT(ce_join(&container, &err), -1);
	CHECK_TEXT(ce_error_text(&err),
		   "cannot enter the container's user namespace: Invalid argument");
	ce_error_clear(&err);
	ce_container_close(&container);
	CHECK_INT(container.user_ns, -1);
	CHECK(container.workdir == NULL);
	ce_container_close(&container);
}
