#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/stage.h"
#include "harness.h"

static void refused(const char *why)
{
	CHECK_CONTAINS(ce_error_text(&guard.err), why);
	ce_error_clear(&guard.err);
}

/* ---- more -------------------------------------------------------------------------------------- */

TEST("what a program prints is done next")
{
	set_up_guard();
	CHECK_INT(RUN("more\0003\0/bin/sh\0-c\0printf 'environment\\0002\\000CE_M\\000a b\\000'\0"
		      "environment\0002\0CE_N\0after"),
		  0);
	CHECK_TEXT(getenv("CE_M"), "a b");
	CHECK_TEXT(getenv("CE_N"), "after");
}

TEST("a program that prints nothing adds nothing")
{
	set_up_guard();
	CHECK_INT(RUN("more\0001\0/bin/true"), 0);
}

TEST("a program that fails ends the start, and the operations that it printed are not run")
{
	size_t size;

	set_up_guard();
	CHECK_INT(RUN("more\0003\0/bin/sh\0-c\0printf 'environment\\0002\\000CE_O\\0001\\000';"
		      "echo why >&2; exit 3"),
		  -1);
	refused("'/bin/sh' ended with exit code 3");
	CHECK(getenv("CE_O") == NULL);
	CE_AUTO_FREE char *log = ce_read_file_at(guard.log, 1000, &size);
	CHECK_TEXT(log, "why\n");
	CHECK_INT(RUN("more\0003\0/bin/sh\0-c\0kill -9 $$"), -1);
	refused("'/bin/sh' was killed by signal 9");
}

TEST("what is printed must be a specification, and adds no more")
{
	set_up_guard();
	CHECK_INT(RUN("more\0002\0/bin/echo\0words"), -1);
	refused("bad operation in the specification");
	CHECK_INT(RUN("more\0003\0/bin/sh\0-c\0printf 'more\\0001\\000/bin/true\\000'"), -1);
	refused("an operation that was added adds more");
}

/* ---- note -------------------------------------------------------------------------------------- */

TEST("a note goes to the launcher as a packet of its own")
{
	int pair[2], fds[CE_MAX_FDS];
	char data[32] = "";

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	guard.control = pair[0];
	CHECK_INT(RUN("note\0001\0{\"a\": 1}\0note\0001\0"), 0);
	CHECK_INT(ce_receive(pair[1], 0, data, sizeof data, fds), 9);
	CHECK_TEXT(data, "N{\"a\": 1}");
	CHECK_INT(ce_receive(pair[1], 0, data, sizeof data, fds), 1);
	CHECK_INT(data[0], 'N');
}

TEST("a note that is too long for a packet is refused")
{
	CE_AUTO_FREE char *note = malloc(100000);

	CHECK(note != NULL);
	memset(note, 'x', 99999);
	note[99999] = '\0';
	char *args[] = { note, NULL };
	CHECK_INT(guard_op_note(&guard, args), -1);
	refused("a note of 99999 bytes");
}

/* ---- root-bind --------------------------------------------------------------------------------- */

/* Make a directory `root` and a file `lib` to bind into it, in a mount namespace of this test. */
static void make_places(void)
{
	test_needs_root();
	CHECK_INT(chdir(test_directory()), 0);
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_INT(mkdir("root", 0755), 0);
	CHECK_INT(mkdir("root/usr", 0755), 0);
	test_file(test_directory(), "lib", "host", 0644);
}

static void has(const char *path, const char *wanted)
{
	size_t size = 0;
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	CE_AUTO_FREE char *text = fd >= 0 ? ce_read_all(fd, 100, &size) : NULL;

	CHECK_TEXT(text, wanted);
}

TEST("a file of the host is mounted over one of the image and cannot be written")
{
	make_places();
	test_file(test_directory(), "root/usr/lib", "image", 0644);
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/usr/lib"), 0);
	has("root/usr/lib", "host");
	CHECK_INT(open("root/usr/lib", O_WRONLY | O_CLOEXEC), -1);
	CHECK_INT(errno, EROFS);
	CHECK_INT(umount("root/usr/lib"), 0);
	has("root/usr/lib", "image");
}

TEST("setuid programs and devices in a mount bound into the image have no effect, nor have those in mounts "
     "below it")
{
	struct statvfs found;

	make_places();
	CHECK_INT(mkdir("dir", 0755), 0);
	CHECK_INT(mkdir("dir/inner", 0755), 0);
	CHECK_INT(mount("tmpfs", "dir/inner", "tmpfs", 0, NULL), 0);
	CHECK_INT(RUN("root-bind\0003\0dir\0root\0/usr/dir"), 0);
	CHECK_INT(statvfs("root/usr/dir", &found), 0);
	CHECK_INT(found.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV), ST_RDONLY | ST_NOSUID | ST_NODEV);
	CHECK_INT(statvfs("root/usr/dir/inner", &found), 0);
	CHECK_INT(found.f_flag & (ST_RDONLY | ST_NOSUID | ST_NODEV), ST_RDONLY | ST_NOSUID | ST_NODEV);
}

TEST("where the image has nothing, a place is made")
{
	make_places();
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/.container-engine/lib/liba.so"), 0);
	has("root/.container-engine/lib/liba.so", "host");
	CHECK_INT(mkdir("dir", 0755), 0);
	test_file(test_directory(), "dir/inner", "in it", 0644);
	CHECK_INT(RUN("root-bind\0003\0dir\0root\0/opt/dir"), 0);
	has("root/opt/dir/inner", "in it");
	umount("root/.container-engine/lib/liba.so");
	umount("root/opt/dir");
}

TEST("links of the image are followed inside the image")
{
	make_places();
	test_file(test_directory(), "victim", "mine", 0644);
	test_file(test_directory(), "root/victim", "image", 0644);
	CHECK_INT(symlink("../../../../victim", "root/usr/up"), 0);
	CHECK_INT(symlink("/victim", "root/usr/absolute"), 0);
	CHECK_INT(symlink("/", "root/usr/slash"), 0);
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/usr/up"), 0);
	has("root/victim", "host");
	has("victim", "mine");
	CHECK_INT(umount("root/victim"), 0);
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/usr/absolute"), 0);
	has("root/victim", "host");
	CHECK_INT(umount("root/victim"), 0);
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/usr/slash/etc/new"), 0);
	has("root/etc/new", "host");
	CHECK_INT(umount("root/etc/new"), 0);
	CHECK_INT(access("/etc/new", F_OK), -1);
}

TEST("a place that leads through /proc is one of the image, and a circle is refused")
{
	make_places();
	CHECK_INT(symlink("/proc/self/root/etc", "root/magic"), 0);
	CHECK_INT(symlink("circle", "root/circle"), 0);
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/magic/lib"), 0);
	has("root/proc/self/root/etc/lib", "host");
	CHECK_INT(umount("root/proc/self/root/etc/lib"), 0);
	CHECK_INT(access("/etc/lib", F_OK), -1);
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/circle"), -1);
	refused("cannot make '/circle' in the image");
	CHECK_INT(RUN("root-bind\0003\0missing\0root\0/x"), -1);
	refused("cannot put 'missing' into the image");
	CHECK_INT(mkdir("root/directory", 0755), 0);
	CHECK_INT(RUN("root-bind\0003\0lib\0root\0/directory"), -1);
	refused("cannot put 'lib' over '/directory' of the image");
}
