/* Removing what containers of a job have written. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "common/remove_tree.h"
#include "harness.h"

enum { LEVELS = 300, OTHER = 61001 };

static void remove_in(const char *directory, const char *name)
{
	CE_AUTO_FD parent = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);

	CHECK(parent >= 0);
	ce_remove_tree(parent, name);
}

static int is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static const char *made(const char *directory, const char *name)
{
	const char *path = test_path(directory, name);

	CHECK_INT(mkdir(path, 0755), 0);
	return path;
}

/* Make a mount namespace, and a tree with a directory to mount on, which *place names. Return the tree's
 * path. */
static const char *tree_with_place(const char *directory, const char **place)
{
	test_needs_root();
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	const char *tree = made(directory, "tree");
	test_file(tree, "file", "", 0644);
	*place = made(made(tree, "sub"), "place");
	return tree;
}

static void remove_own(void)
{
	const char *directory = test_directory(), *tree = made(directory, "tree");

	test_file(made(tree, "sub"), "file", "", 0);
	CHECK_INT(chmod(test_path(tree, "sub"), 0), 0);
	CHECK_INT(chmod(tree, 0), 0);
	remove_in(directory, "tree");
	CHECK(!is_there(tree));
}

TEST("directories that their owner may not read are removed all the same")
{
	int status;

	CHECK_INT(chmod(test_directory(), 0777), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (geteuid() == 0)
			CHECK_INT(setresuid(OTHER, OTHER, OTHER), 0);
		remove_own();
		_exit(0);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
}

TEST("a tree is removed as a whole, and nothing that its links lead to")
{
	const char *directory = test_directory(), *other = made(directory, "other");
	const char *file = test_file(other, "file", "mine", 0644);
	const char *tree = made(directory, "tree"), *sub = made(tree, "sub");

	test_file(sub, "file", "", 0);
	CHECK_INT(symlink(other, test_path(sub, "directory")), 0);
	CHECK_INT(symlink(file, test_path(tree, "link")), 0);
	CHECK_INT(mkfifo(test_path(tree, "fifo"), 0), 0);
	CHECK_INT(chmod(sub, 0), 0);
	remove_in(directory, "tree");
	CHECK(!is_there(tree) && is_there(file));
}

TEST("a tree that is a link is removed without what it leads to")
{
	const char *directory = test_directory(), *other = made(directory, "other");
	const char *file = test_file(other, "file", "mine", 0644);

	CHECK_INT(symlink(other, test_path(directory, "tree")), 0);
	remove_in(directory, "tree");
	CHECK(!is_there(test_path(directory, "tree")) && is_there(file));
}

TEST("a tree of more levels than a process may have descriptors is removed")
{
	const char *directory = test_directory();
	CE_AUTO_FD place = open(made(directory, "tree"), O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (int level = 0; level < LEVELS; level++) {
		CHECK_INT(mkdirat(place, "d", 0700), 0);
		int below = openat(place, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		CHECK(below >= 0);
		close(place);
		place = below;
	}
	struct rlimit few = { .rlim_cur = 100, .rlim_max = 100 };
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
	remove_in(directory, "tree");
	CHECK(!is_there(test_path(directory, "tree")));
}

TEST("what is mounted in a tree stays, of another file system or of the same one")
{
	const char *directory = test_directory(), *other = made(directory, "other"), *place;
	const char *file = test_file(other, "file", "mine", 0644);
	const char *tree = tree_with_place(directory, &place);

	CHECK_INT(mount("none", place, "tmpfs", 0, NULL), 0);
	const char *inside = test_file(place, "inside", "mine", 0644);
	remove_in(directory, "tree");
	CHECK(is_there(inside) && !is_there(test_path(tree, "file")));
	CHECK_INT(umount(place), 0);
	CHECK_INT(mount(other, place, NULL, MS_BIND, NULL), 0);
	remove_in(directory, "tree");
	CHECK(is_there(file) && is_there(test_path(place, "file")));
	CHECK_INT(umount(place), 0);
	remove_in(directory, "tree");
	CHECK(!is_there(tree) && is_there(file));
}

TEST("a tree that is a mount itself stays")
{
	const char *directory = test_directory(), *place;
	const char *tree = tree_with_place(directory, &place);

	CHECK_INT(mount("none", tree, "tmpfs", 0, NULL), 0);
	const char *inside = test_file(tree, "inside", "mine", 0644);
	remove_in(directory, "tree");
	CHECK(is_there(inside));
	CHECK_INT(umount(tree), 0);
}
