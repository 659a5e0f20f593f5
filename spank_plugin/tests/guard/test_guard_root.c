#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/guard_ops.h"
#include "harness.h"

#define ENTRY "me:x:1000:1000::/home/me:/bin/sh"

static struct guard guard = GUARD_INIT;

/* Make an image's root with a directory /etc, change to the directory above it, and return its path. */
static const char *make_root(void)
{
	const char *root = test_path(test_directory(), "root");

	CHECK_INT(chdir(test_directory()), 0);
	CHECK_INT(mkdir(root, 0755), 0);
	CHECK_INT(mkdir("root/etc", 0755), 0);
	return root;
}

static char *content(const char *path)
{
	return ce_read_path(AT_FDCWD, path, 0, 1 << 20, NULL);
}

static int add(const char *root)
{
	char *args[] = { (char *)root, (char *)"/etc/passwd", (char *)"1000", (char *)ENTRY, NULL };

	return guard_op_root_entry(&guard, args);
}

/* Check that /etc/passwd with the content `before` becomes `wanted` when the user's entry is added. */
static void becomes(const char *before, const char *wanted)
{
	const char *root = test_path(test_directory(), "root");

	test_file(root, "etc/passwd", before, 0644);
	CHECK_INT(add(root), 0);
	CE_AUTO_FREE char *after = content("root/etc/passwd");
	CHECK_TEXT(after, wanted);
}

TEST("an entry is added after those of the image")
{
	make_root();
	becomes("", ENTRY "\n");
	becomes("root:x:0:0:root:/root:/bin/sh\n", "root:x:0:0:root:/root:/bin/sh\n" ENTRY "\n");
	becomes("\n\n", "\n\n" ENTRY "\n");
	becomes("# a comment\n", "# a comment\n" ENTRY "\n");
}

TEST("a last line without its newline stays a line of its own")
{
	make_root();
	becomes("root:x:0:0::/:", "root:x:0:0::/:\n" ENTRY "\n");
}

TEST("an id that the image knows keeps its entry")
{
	static const char *const known[] = {
		"you:x:1000:5::/:/bin/sh\n", "you:x:1000:5::/:/bin/sh", "root:x:0:0:::\nyou:x:1000:",
		"you::1000:", "you:x:1000\n", "you:x:1000", "\n\nyou:*:1000:1::/:\nmore:x:1:1::/:\n",
	};

	make_root();
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		becomes(known[i], known[i]);
}

TEST("an id that only begins or ends alike is another")
{
	static const char *const others[] = {
		"a:x:10000:1::/:\n", "a:x:100:1000::/:\n", "a:1000:1:1::/:\n", "1000:x:1:1::/:\n",
		"a:x: 1000:1::/:\n", "a:x:01000:1::/:\n",  "1000\n",		 "a:1000\n",
		"a:x\n1000:x:5:\n",  "a\n:\n:1000:5:\n",   ":\n",		 "a:x:\n1000:\n",
	};

	make_root();
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		char wanted[128];
		snprintf(wanted, sizeof wanted, "%s" ENTRY "\n", others[i]);
		becomes(others[i], wanted);
	}
}

TEST("an image without /etc gets one")
{
	const char *root = make_root();

	CHECK_INT(rmdir("root/etc"), 0);
	CHECK_INT(add(root), 0);
	CE_AUTO_FREE char *after = content("root/etc/passwd");
	CHECK_TEXT(after, ENTRY "\n");
}

/* Check that with /etc/passwd as a link to `target`, nothing outside the root changes or appears. */
static void stays_inside(const char *target, const char *inside)
{
	const char *root = make_root();

	test_file(test_directory(), "outside", "untouched\n", 0644);
	CHECK_INT(symlink(target, "root/etc/passwd"), 0);
	CHECK_INT(add(root), 0);
	CE_AUTO_FREE char *outside = content("outside"), *entry = content(inside);
	CHECK_TEXT(outside, "untouched\n");
	CHECK_TEXT(entry, ENTRY "\n");
}

TEST("a link with too many .. stays inside the image")
{
	stays_inside("../../outside", "root/outside");
}

TEST("an absolute link stays inside the image")
{
	stays_inside("/outside", "root/outside");
}

enum { RENAMERS = 4 };

static pid_t rename_for_ever(int number)
{
	char one[32], other[32];

	snprintf(one, sizeof one, "busy%d", number);
	snprintf(other, sizeof other, "busier%d", number);
	test_file(test_directory(), one, "", 0644);
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (rename(one, other) == 0 && rename(other, one) == 0)
		;
	_exit(1);
}

TEST("a link with .. is followed while files elsewhere on the machine are renamed")
{
	const char *root = make_root();
	pid_t renamers[RENAMERS];

	for (int i = 0; i < RENAMERS; i++)
		renamers[i] = rename_for_ever(i);
	CHECK_INT(symlink("../etc/../etc/../etc/entries", "root/etc/passwd"), 0);
	for (int i = 0; i < 3000; i++) {
		CHECK_INT(add(root), 0);
		CHECK_INT(unlink("root/etc/entries"), 0);
	}
	for (int i = 0; i < RENAMERS; i++) {
		CHECK_INT(kill(renamers[i], SIGKILL), 0);
		waitpid(renamers[i], NULL, 0);
	}
}

TEST("a chain of links stays inside the image")
{
	const char *root = make_root();

	CHECK_INT(symlink("/etc/second", "root/etc/passwd"), 0);
	CHECK_INT(symlink("../../../../../../../../third", "root/etc/second"), 0);
	CHECK_INT(add(root), 0);
	CE_AUTO_FREE char *entry = content("root/third");
	CHECK_TEXT(entry, ENTRY "\n");
}

TEST("an absolute path of the host inside a link is not the host's file")
{
	const char *root = make_root();
	char target[128];

	test_file(test_directory(), "outside", "untouched\n", 0644);
	snprintf(target, sizeof target, "%s/outside", test_directory());
	CHECK_INT(symlink(target, "root/etc/passwd"), 0);
	CHECK_INT(add(root), 0);
	CE_AUTO_FREE char *outside = content("outside");
	CHECK_TEXT(outside, "untouched\n");
	CE_AUTO_FREE char *inside = content(test_path("root", target + 1));
	CHECK_TEXT(inside, ENTRY "\n");
}

TEST("/etc as a link out of the image stays inside")
{
	const char *root = make_root();

	CHECK_INT(mkdir("etc", 0755), 0);
	CHECK_INT(rmdir("root/etc"), 0);
	CHECK_INT(mkdir("root/real", 0755), 0);
	CHECK_INT(symlink("../../real", "root/etc"), 0);
	CHECK_INT(add(root), 0);
	CHECK_INT(access("root/real/passwd", F_OK), 0);
	CHECK_INT(access("etc/passwd", F_OK), -1);
}

TEST("a link through /proc leads to nothing outside")
{
	const char *root = make_root();

	test_file(test_directory(), "outside", "untouched\n", 0644);
	CE_AUTO_FD outside = open("outside", O_RDWR | O_CLOEXEC);
	char target[64];
	CHECK_INT(mkdir("root/proc", 0755), 0);
	snprintf(target, sizeof target, "/proc/self/fd/%d", outside);
	CHECK_INT(symlink(target, "root/etc/passwd"), 0);
	CHECK_INT(add(root), 0);
	CE_AUTO_FREE char *text = content("outside");
	CHECK_TEXT(text, "untouched\n");
}

TEST("links in a circle are an error")
{
	const char *root = make_root();

	CHECK_INT(symlink("passwd", "root/etc/passwd"), 0);
	CHECK_INT(add(root), -1);
	CHECK_TEXT(ce_error_text(&guard.err),
		   "cannot open '/etc/passwd' in the image, where '/etc/passwd' is a link to 'passwd'");
	ce_error_clear(&guard.err);
}

TEST("a passwd that is a directory or a FIFO is an error and nothing waits for it")
{
	const char *root = make_root();

	CHECK_INT(mkfifo("root/etc/passwd", 0644), 0);
	CHECK_INT(add(root), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "'/etc/passwd' in the image");
	ce_error_clear(&guard.err);
	CHECK_INT(remove("root/etc/passwd"), 0);
	CHECK_INT(mkdir("root/etc/passwd", 0755), 0);
	CHECK_INT(add(root), -1);
	ce_error_clear(&guard.err);
}

/* ---- directories ------------------------------------------------------------------------------- */

static int make_dir(const char *root, const char *path)
{
	char *args[] = { (char *)root, (char *)path, NULL };

	return guard_op_root_dir(&guard, args);
}

TEST("a home directory is made with all that lead to it")
{
	const char *root = make_root();

	umask(022);
	CHECK_INT(make_dir(root, "/a/b c//d/"), 0);
	CHECK_INT(access("root/a/b c/d", X_OK), 0);
	CHECK_INT(make_dir(root, "/a/b c/d"), 0);
	CHECK_INT(make_dir(root, "/"), 0);
}

static int see_to_devices(const char *root)
{
	char *args[] = { (char *)root, NULL };

	return guard_op_root_devices(&guard, args);
}

TEST("a /dev that would lead out of the root on the node is a link inside it then, others stay")
{
	static const char *const targets[] = { "/usr/dev", "../../../usr/dev", "more", "usr/dev" };
	const char *root = make_root();
	char target[64];

	CHECK_INT(make_dir(root, "/usr/dev"), 0);
	CHECK_INT(symlink("/usr/dev", "root/more"), 0);
	for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
		CHECK_INT(symlink(targets[i], "root/dev"), 0);
		CHECK_INT(see_to_devices(root), 0);
		memset(target, 0, sizeof target);
		CHECK_INT(readlink("root/dev", target, sizeof target - 1), 7);
		CHECK_TEXT(target, "usr/dev");
		CHECK_INT(unlink("root/dev"), 0);
	}
	CHECK_INT(mkdir("root/dev", 0755), 0);
	CHECK_INT(see_to_devices(root), 0);
	CHECK_INT(rmdir("root/dev"), 0);
	test_file("root", "dev", "", 0644);
	CHECK_INT(see_to_devices(root), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "'/dev' in the image is not a directory");
	ce_error_clear(&guard.err);
}

TEST("a home directory with .. or behind links stays inside the image")
{
	const char *root = make_root();

	CHECK_INT(make_dir(root, "/../../out1/x"), 0);
	CHECK_INT(access("out1", F_OK), -1);
	CHECK_INT(symlink("../..", "root/link"), 0);
	CHECK_INT(make_dir(root, "/link/out2/x"), 0);
	CHECK_INT(access("out2", F_OK), -1);
	CHECK_INT(access("root/out2/x", F_OK), 0);
}

TEST("a home directory that cannot be one is an error")
{
	const char *root = make_root();

	CHECK_INT(make_dir(root, "relative"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "cannot make the directory 'relative' in the image");
	ce_error_clear(&guard.err);
	CHECK_INT(make_dir(root, ""), -1);
	ce_error_clear(&guard.err);
	test_file(root, "file", "", 0644);
	CHECK_INT(make_dir(root, "/file/x"), -1);
	ce_error_clear(&guard.err);
	CHECK_INT(make_dir("/no/such/root", "/x"), -1);
	ce_error_clear(&guard.err);
}

/* ---- dangling links ------------------------------------------------------------------------------ */

static int place(const char *path, const char *source)
{
	char *args[] = { (char *)"root", (char *)path, (char *)source, NULL };

	return guard_op_root_place(&guard, args);
}

static void check_link(const char *target, const char *path)
{
	CHECK_INT(symlink(target, path), 0);
}

/* Check that there is a directory or an empty file. */
static void is_made(const char *path, int is_dir)
{
	struct stat st;

	CHECK_INT(lstat(path, &st), 0);
	CHECK_INT(is_dir ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode) && st.st_size == 0, 1);
	CHECK_INT(st.st_mode & 07777, is_dir ? 0755 : 0644);
}

TEST("what a dangling link names is made, for directories and files, at the link and below it")
{
	make_root();
	umask(022);
	test_file(test_directory(), "file", "", 0600);
	check_link("var/opt", "root/opt");
	check_link("/var/data", "root/data");
	check_link("../../../../../../var/far", "root/etc/far");
	CHECK_INT(place("/opt/a", "file"), 0);
	is_made("root/var/opt/a", 0);
	CHECK_INT(place("/data", "/"), 0);
	is_made("root/var/data", 1);
	CHECK_INT(place("/data/b/c", "/"), 0);
	is_made("root/var/data/b/c", 1);
	CHECK_INT(place("/etc/far/file", "file"), 0);
	is_made("root/var/far/file", 0);
	check_link("var/one", "root/one");
	CHECK_INT(place("/one", "file"), 0);
	is_made("root/var/one", 0);
	CHECK_INT(make_dir("root", "/opt/home/me"), 0);
	is_made("root/var/opt/home/me", 1);
}

TEST("chains of dangling links, and links in what they name, are followed")
{
	make_root();
	umask(022);
	check_link("a/b", "root/x");
	check_link("/c/d/", "root/a");
	CHECK_INT(mkdir("root/c", 0755), 0);
	check_link("../e/./f/..//g", "root/c/d");
	CHECK_INT(place("/x/y", "/"), 0);
	is_made("root/e/g/b/y", 1);
	is_made("root/e/f", 1);
	check_link("/", "root/top");
	check_link("top/..", "root/over");
	CHECK_INT(place("/over/z/", "/"), 0);
	is_made("root/z", 1);
}

TEST("dangling links never lead out of the image, nor through /proc")
{
	char target[64];

	make_root();
	CHECK_INT(mkdir("away", 0755), 0);
	check_link("../away/x", "root/out");
	check_link(test_path(test_directory(), "away/y"), "root/host");
	CHECK_INT(place("/out/1", "/"), 0);
	CHECK_INT(place("/host/2", "/"), 0);
	CE_AUTO_FD away = open("away", O_PATH | O_CLOEXEC);
	snprintf(target, sizeof target, "/proc/self/fd/%d/z", away);
	check_link(target, "root/magic");
	CHECK_INT(place("/magic/3", "/"), 0);
	CHECK_INT(rmdir("away"), 0);
}

TEST("a loop, or a file on the way, is an error with the link and its target")
{
	make_root();
	test_file(test_directory(), "file", "", 0600);
	test_file("root", "etc/passwd", "", 0644);
	check_link("two", "root/one");
	check_link("/one/x", "root/two");
	CHECK_INT(place("/one/y", "/"), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "cannot make '/one/y' in the image, where '/");
	CHECK_CONTAINS(ce_error_text(&guard.err), " is a link to '");
	CHECK_INT(guard.stage_errno, ELOOP);
	ce_error_clear(&guard.err);
	check_link("etc/passwd", "root/data");
	CHECK_INT(place("/data/sub", "/"), -1);
	CHECK_TEXT(ce_error_text(&guard.err),
		   "cannot make '/data/sub' in the image, where '/data' is a link to 'etc/passwd'");
	CHECK_INT(guard.stage_errno, ENOTDIR);
	ce_error_clear(&guard.err);
	CHECK_INT(place("/data", "/"), -1);
	CHECK_TEXT(ce_error_text(&guard.err),
		   "cannot mount anything on '/data' in the image, where '/data' is a link to 'etc/passwd'");
	CHECK_INT(guard.stage_errno, ENOTDIR);
	ce_error_clear(&guard.err);
	check_link("etc", "root/dir");
	CHECK_INT(place("/dir", "file"), -1);
	CHECK_INT(guard.stage_errno, EISDIR);
	ce_error_clear(&guard.err);
	CHECK_INT(place("/etc/passwd/x", "/"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "cannot make '/etc/passwd/x' in the image");
	ce_error_clear(&guard.err);
}

TEST("what a mount would hide, or has no source, is left to the runtime")
{
	make_root();
	test_file(test_directory(), "file", "", 0600);
	CHECK_INT(place("/etc", "file"), 0);
	CHECK_INT(place("/new", "/no/such/source"), 0);
	CHECK_INT(access("root/new", F_OK), -1);
}

TEST("forty links are followed, one more is a loop, and paths that are too long are errors")
{
	char name[32], target[32], path[PATH_MAX + 1];

	make_root();
	check_link("end/x", "root/0");
	for (int i = 1; i < 41; i++) {
		snprintf(target, sizeof target, "%d", i - 1);
		snprintf(name, sizeof name, "root/%d", i);
		check_link(target, name);
	}
	CHECK_INT(place("/39", "/"), 0);
	CHECK_INT(remove("root/end/x"), 0);
	CHECK_INT(place("/40", "/"), -1);
	CHECK_INT(guard.stage_errno, ELOOP);
	ce_error_clear(&guard.err);
	memset(path, 'x', PATH_MAX);
	path[0] = '/';
	path[PATH_MAX] = '\0';
	CHECK_INT(place(path, "/"), -1);
	CHECK_INT(guard.stage_errno, ENAMETOOLONG);
	ce_error_clear(&guard.err);
	path[NAME_MAX + 2] = '\0';
	CHECK_INT(place(path, "/"), -1);
	CHECK_INT(guard.stage_errno, ENAMETOOLONG);
	ce_error_clear(&guard.err);
}

/* ---- what the ssh hook puts into an image -------------------------------------------------------- */

static int put_first(const char *root, const char *path)
{
	char *args[] = { (char *)root, (char *)path, (char *)"Include /job/config", NULL };

	return guard_op_root_first(&guard, args);
}

static int put_link(const char *root, const char *path)
{
	char *args[] = { (char *)root, (char *)path, (char *)"/opt/ssh", NULL };

	return guard_op_root_link(&guard, args);
}

TEST("a first line is inserted before the content of a file of the image")
{
	const char *root = make_root();

	test_file(root, "etc/config", "Host *\n  Port 1\n", 0644);
	CHECK_INT(put_first(root, "/etc/config"), 0);
	CE_AUTO_FREE char *after = content("root/etc/config");
	CHECK_TEXT(after, "Include /job/config\nHost *\n  Port 1\n");
}

TEST("a first line makes the file and its directory where the image has none")
{
	const char *root = make_root();

	CHECK_INT(put_first(root, "/etc/ssh/config"), 0);
	CE_AUTO_FREE char *after = content("root/etc/ssh/config");
	CHECK_TEXT(after, "Include /job/config\n");
}

TEST("a first line stays inside the image, and a FIFO is not waited for")
{
	const char *root = make_root();
	struct stat st;

	CHECK_INT(symlink("../../outside", "root/etc/config"), 0);
	CHECK_INT(put_first(root, "/etc/config"), 0);
	CHECK_INT(stat("outside", &st), -1);
	CHECK_INT(mkfifo("root/etc/fifo", 0600), 0);
	CHECK_INT(put_first(root, "/etc/fifo"), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "is not a regular file");
	ce_error_clear(&guard.err);
}

TEST("a link is made only where the image has nothing, and inside it")
{
	const char *root = make_root();
	char target[64] = "";

	CHECK_INT(put_link(root, "/usr/bin/ssh"), 0);
	CHECK_INT(readlink("root/usr/bin/ssh", target, sizeof target - 1), 8);
	CHECK_TEXT(target, "/opt/ssh");
	test_file(root, "etc/own", "the image's\n", 0755);
	CHECK_INT(put_link(root, "/etc/own"), 0);
	CE_AUTO_FREE char *after = content("root/etc/own");
	CHECK_TEXT(after, "the image's\n");
	CHECK_INT(mkdir("away", 0755), 0);
	CHECK_INT(symlink("../away", "root/out"), 0);
	CHECK_INT(put_link(root, "/out/ssh"), 0);
	CHECK_INT(readlink("away/ssh", target, sizeof target - 1), -1);
	CHECK_INT(readlink("root/away/ssh", target, sizeof target - 1), 8);
}

static int set(const char *path, const char *text)
{
	char *args[] = { (char *)"root", (char *)path, (char *)text, NULL };

	return guard_op_root_setting(&guard, args);
}

TEST("a setting is written where the image has a directory for it, else nothing")
{
	make_root();
	CHECK_INT(set("/etc/apt/own", "none\n"), 0);
	CHECK_INT(access("root/etc/apt", F_OK), -1);
	CHECK_INT(set("/etc/own", "a longer text\n"), 0);
	CHECK_INT(set("/etc/own", "text\n"), 0);
	CE_AUTO_FREE char *written = content("root/etc/own");
	CHECK_TEXT(written, "text\n");
}

TEST("a setting is never written outside the image, and a FIFO in the image does not block it")
{
	make_root();
	CHECK_INT(mkdir("outside", 0755), 0);
	CHECK_INT(symlink("../../outside", "root/etc/away"), 0);
	CHECK_INT(symlink(test_path(test_directory(), "outside/file"), "root/etc/link"), 0);
	CHECK_INT(set("/etc/away/own", "text\n"), 0);
	CHECK_INT(set("/etc/link", "text\n"), 0);
	CHECK_INT(access("outside/own", F_OK), -1);
	CHECK_INT(access("outside/file", F_OK), -1);
	CHECK_INT(mkfifo("root/etc/pipe", 0644), 0);
	CHECK_INT(set("/etc/pipe", "text\n"), -1);
	CHECK_TEXT(ce_error_text(&guard.err), "'/etc/pipe' in the image is not a regular file");
	ce_error_clear(&guard.err);
}

/* ---- what was recorded of a look into an image ------------------------------------------------- */

static int put(const char *path, const char *source)
{
	char *args[] = { (char *)source, (char *)"root", (char *)path, NULL };

	return guard_op_root_copy(&guard, args);
}

static int drop(const char *path)
{
	char *args[] = { (char *)"root", (char *)path, NULL };

	return guard_op_root_remove(&guard, args);
}

TEST("a copy is put in place of the image's file, byte by byte")
{
	static const char wanted[] = "a\0b\1c";
	size_t size = 0;

	make_root();
	test_file("root/etc", "cache", "the image's, which is longer\n", 0600);
	CE_AUTO_FD source = open("source", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK_INT(ce_write_all(source, wanted, sizeof wanted - 1), 0);
	CHECK_INT(put("/etc/cache", "source"), 0);
	CE_AUTO_FD file = open("root/etc/cache", O_RDONLY | O_CLOEXEC);
	CE_AUTO_FREE char *found = ce_read_all(file, 1 << 10, &size);
	CHECK_INT(size, sizeof wanted - 1);
	CHECK(memcmp(found, wanted, size) == 0);
	CHECK_INT(access("root/etc/cache.ce-new", F_OK), -1);
	CHECK_INT(put("/etc/deep/conf", "source"), 0);
	CHECK_INT(access("root/etc/deep/conf", F_OK), 0);
}

TEST("a copy stays inside the image, and leads nowhere else")
{
	make_root();
	CHECK_INT(mkdir("outside", 0755), 0);
	test_file("outside", "kept", "kept\n", 0644);
	test_file(test_directory(), "source", "new", 0644);
	CHECK_INT(symlink("../../outside", "root/etc/away"), 0);
	CHECK_INT(symlink(test_path(test_directory(), "outside/kept"), "root/etc/link"), 0);
	CHECK_INT(symlink(test_path(test_directory(), "outside/kept"), "root/etc/x.ce-new"), 0);
	CHECK_INT(put("/etc/link", "source"), 0);
	CE_AUTO_FREE char *here = content("root/etc/link");
	CHECK_TEXT(here, "new");
	CHECK_INT(put("/etc/away/own", "source"), 0);
	CHECK_INT(access("root/outside/own", F_OK), 0);
	CHECK_INT(put("/etc/x", "source"), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "cannot write '/etc/x' in the image");
	ce_error_clear(&guard.err);
	CHECK_INT(put("nothing", "source"), -1);
	ce_error_clear(&guard.err);
	CHECK_INT(access("outside/own", F_OK), -1);
	CE_AUTO_FREE char *kept = content("outside/kept");
	CHECK_TEXT(kept, "kept\n");
}

TEST("what is to be copied is a file, which no link leads to")
{
	make_root();
	test_file(test_directory(), "source", "new", 0644);
	CHECK_INT(symlink("source", "link"), 0);
	CHECK_INT(mkfifo("fifo", 0600), 0);
	for (const char *const *source = (const char *const[]){ "none", "link", ".", NULL }; *source;
	     source++) {
		CHECK_INT(put("/etc/cache", *source), -1);
		CHECK_CONTAINS(ce_error_text(&guard.err), "cannot read '");
		ce_error_clear(&guard.err);
	}
	/* a FIFO is read as an empty file, without a wait for a writer */
	CHECK_INT(put("/etc/cache", "fifo"), 0);
}

TEST("a file is removed from the image and from nowhere else")
{
	make_root();
	CHECK_INT(mkdir("outside", 0755), 0);
	test_file("outside", "kept", "kept\n", 0644);
	test_file("root/etc", "gone", "", 0644);
	CHECK_INT(symlink("../../outside", "root/etc/away"), 0);
	CHECK_INT(drop("/etc/gone"), 0);
	CHECK_INT(access("root/etc/gone", F_OK), -1);
	CHECK_INT(drop("/etc/gone"), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err), "cannot remove '/etc/gone' from the image");
	ce_error_clear(&guard.err);
	CHECK_INT(drop("/etc/away/kept"), -1);
	ce_error_clear(&guard.err);
	CHECK_INT(drop("nothing"), -1);
	ce_error_clear(&guard.err);
	CHECK_INT(access("outside/kept", F_OK), 0);
}

/* Return the result of root-order for these paths. */
static int order(const char *root, const char *first, const char *second)
{
	char *args[] = { (char *)root, (char *)first, (char *)second, NULL };

	ce_error_clear(&guard.err);
	return guard_op_root_order(&guard, args);
}

TEST("a mount that hides an earlier one behind a link is refused, and no other")
{
	const char *root = make_root();

	CHECK_INT(mkdir("root/deep", 0755), 0);
	CHECK_INT(mkdir("root/deep/x", 0755), 0);
	CHECK_INT(symlink("/deep", "root/link"), 0);
	CHECK_INT(order(root, "/deep", "/link/x"), 0);
	CHECK_INT(order(root, "/link", "/deep"), 0);
	CHECK_INT(order(root, "/link/x", "/none"), 0);
	CHECK_INT(order(root, "/etc", "/deep"), 0);
	CHECK_INT(order(root, "/link/x", "/deep"), -1);
	CHECK_CONTAINS(ce_error_text(&guard.err),
		       "'/deep' would hide the one on '/link/x', which is '/deep/x' in the image");
}
