/* Libraries that a program would load from outside the image. This machine is the image, and the tmpfs in
 * /dev/shm is a mount of the host, because it is on another device than the root. */
#define _GNU_SOURCE
#include "advise/advise.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Forget the variables of this shell, so that those of the test are all. */
static void without_variables(void)
{
	CHECK_INT(clearenv(), 0);
}

TEST("variables of the job that name places which the container lacks are reported in one line")
{
	char line[CE_LIBRARY_LINE] = "", path[256];

	without_variables();
	setenv("PYTHONHOME", "/none/python:/none/exec", 1);
	setenv("JAVA_HOME", "/none/java", 1);
	snprintf(path, sizeof path, "/none/perl:%s", test_directory());
	setenv("PERL5LIB", path, 1);       /* one of its directories is there */
	setenv("R_HOME", "relative/R", 1); /* from any directory */
	setenv("GCONV_PATH", "", 1);
	setenv("CE_A", "/none/else", 1);
	CHECK_INT(ce_find_missing_places(RECORDS("PATH=/bin"), &variables, line), 1);
	CHECK_TEXT(line,
		   "PYTHONHOME='/none/python:/none/exec', JAVA_HOME='/none/java' of your shell or its "
		   "modules: not in the container (mount it, or remove the variable by NAME = \"\" below "
		   "[env]: ce help host-libraries)");
	/* the image and the environment decide these */
	CHECK_INT(ce_find_missing_places(RECORDS("PYTHONHOME=/none\0JAVA_HOME"), &variables, line), 0);
	CHECK_INT(ce_find_missing_places(RECORDS("PYTHONHOME"), &variables, line), 1);
	CHECK(strncmp(line, "JAVA_HOME='/none/java' of", 25) == 0);
}

TEST("a shell that the container lacks is reported at a terminal, and long values are cut")
{
	char line[CE_LIBRARY_LINE] = "", value[4096];

	without_variables();
	setenv("SHELL", "/none/zsh", 1);
	CHECK(freopen("/dev/null", "r", stdin) != NULL);
	CHECK_INT(ce_find_missing_places(RECORDS("PATH=/bin"), &variables, line), 0);
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(terminal >= 0 && dup2(terminal, STDIN_FILENO) == STDIN_FILENO);
	CHECK_INT(ce_find_missing_places(RECORDS("PATH=/bin"), &variables, line), 1);
	CHECK_CONTAINS(line, "SHELL='/none/zsh' of your shell");
	memset(value, 'x', sizeof value - 1);
	value[0] = '/';
	value[sizeof value - 1] = '\0';
	for (size_t i = 0; i < 6; i++) {
		static const char *const names[] = { "PYTHONHOME", "R_HOME",  "PERL5LIB",
						     "RUBYLIB",	   "LOCPATH", "TERMINFO" };
		setenv(names[i], value, 1);
	}
	CHECK_INT(ce_find_missing_places(RECORDS("PATH=/bin"), &variables, line), 1);
	CHECK_CONTAINS(line, "PYTHONHOME='/xxx");
	CHECK_CONTAINS(line, "(mount it, or remove");
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
