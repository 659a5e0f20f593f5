/* Libraries that a program would load from outside the image. This machine is the image, and the tmpfs in
 * /dev/shm is a mount of the host, because it is on another device than the root. */
#define _GNU_SOURCE
#include "common/library_check.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

static const char *get(void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

static const struct ce_variables variables = { NULL, get, NULL };

static int records(const char *text, size_t size)
{
	int fd = ce_memory_file("records", text, size);

	CHECK(fd >= 0);
	return fd;
}

#define RECORDS(text) records(text, sizeof(text))

static char place[64];

/* Make a file in a new directory of another file system than the root's. */
static void mount_with(const char *name)
{
	snprintf(place, sizeof place, "/dev/shm/ce-test-XXXXXX");
	CHECK(mkdtemp(place) != NULL);
	test_file(place, name, "", 0644);
}

static void remove_mount(const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", place, name);
	CHECK_INT(unlink(path), 0);
	CHECK_INT(rmdir(place), 0);
}

TEST("a library of a mounted directory that the job's LD_LIBRARY_PATH names is reported")
{
	char path[256], line[CE_LIBRARY_LINE] = "", wanted[CE_LIBRARY_LINE];

	mount_with("libc.so.6");
	snprintf(path, sizeof path, "/absent::relative:%s/:%s", test_directory(), place);
	CHECK_INT(setenv("LD_LIBRARY_PATH", path, 1), 0);
	CHECK_INT(ce_find_host_library(RECORDS("PATH=/bin"), &variables, line), 1);
	snprintf(wanted, sizeof wanted,
		 "libc.so.6 comes from '%s', not from the image: LD_LIBRARY_PATH of your shell or its "
		 "modules names it (write LD_LIBRARY_PATH = \"\" below [env] to use the image's: "
		 "ce help host-libraries)",
		 place);
	CHECK_TEXT(line, wanted);
	/* the environment sets the variable, so it is not the job's */
	CHECK_INT(ce_find_host_library(RECORDS("PATH=/bin\0LD_LIBRARY_PATH=/x"), &variables, line), 0);
	CHECK_INT(ce_find_host_library(RECORDS("LD_LIBRARY_PATH"), &variables, line), 0);
	CHECK_INT(ce_find_host_library(RECORDS("LD_LIBRARY_PATHS=/x"), &variables, line), 1);
	remove_mount("libc.so.6");
	CHECK_INT(ce_find_host_library(RECORDS("PATH=/bin"), &variables, line), 0);
}

TEST("a directory of the image itself, and a library that the image does not have, are fine")
{
	char path[256], line[CE_LIBRARY_LINE] = "";

	mount_with("libmpi.so.4711");
	snprintf(path, sizeof path, "%s:/usr/lib:/lib64", place);
	CHECK_INT(setenv("LD_LIBRARY_PATH", path, 1), 0);
	CHECK_INT(ce_find_host_library(RECORDS("PATH=/bin"), &variables, line), 0);
	CHECK_INT(unsetenv("LD_LIBRARY_PATH"), 0);
	CHECK_INT(ce_find_host_library(RECORDS("PATH=/bin"), &variables, line), 0);
	remove_mount("libmpi.so.4711");
}

TEST("a program whose MPI library is not there is reported, unless it may find it by itself")
{
	char line[CE_LIBRARY_LINE] = "";

	CHECK_INT(chdir(test_directory()), 0);
	CHECK_INT(unsetenv("LD_LIBRARY_PATH"), 0);
	test_build("-shared -fPIC -Wl,-soname,libmpi.so.4711 -o libmpi.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmpi -o hello");
	test_build("-shared -fPIC -Wl,--no-as-needed,-rpath,/somewhere -L. -lmpi -o finds");
	test_build("-shared -fPIC -o other");
	CHECK_INT(ce_lacks_mpi("hello", &variables, line), 1);
	CHECK_CONTAINS(line, "the program ");
	CHECK_CONTAINS(line, "MPI (libmpi.so.4711)");
	CHECK_INT(ce_lacks_mpi("finds", &variables, line), 0);
	CHECK_INT(ce_lacks_mpi("other", &variables, line), 0);
	test_file(test_directory(), "libmpi.so.4711", "", 0644);
	CHECK_INT(setenv("LD_LIBRARY_PATH", test_directory(), 1), 0);
	CHECK_INT(ce_lacks_mpi("hello", &variables, line), 0);
}

TEST("an MPI library of an image of Alpine's may be in /usr/local/lib, which has no file of ldconfig")
{
	char line[CE_LIBRARY_LINE] = "";

	test_needs_root();
	CHECK_INT(chdir(test_directory()), 0);
	CHECK_INT(unsetenv("LD_LIBRARY_PATH"), 0);
	test_build("-shared -fPIC -Wl,-soname,libmpi.so.4711 -o libmpi.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmpi -o hello");
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_INT(mount("none", "/usr/local/lib", "tmpfs", 0, NULL), 0);
	CHECK_INT(ce_lacks_mpi("hello", &variables, line), 1);
	test_file("/usr/local/lib", "libmpi.so.4711", "", 0644);
	CHECK_INT(ce_lacks_mpi("hello", &variables, line), 0);
}
