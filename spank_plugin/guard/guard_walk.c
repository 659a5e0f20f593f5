/*
 * Paths inside the image's root. The kernel resolves what exists (openat2). It cannot make what a dangling
 * symlink names, and an image with the root of a bootable system has such: /home -> var/home, and an empty
 * /var. So a path that does not exist is walked part by part, and what is missing is made.
 */
#define _GNU_SOURCE
#include "guard_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io.h"

/* MOST_LINKS is the kernel's own limit */
enum { MAX_TRIES = 100000, MOST_LINKS = 40 };

struct walk {
	int root, links;
	int stays;	     /* whether nothing is made on another file system than the root's */
	char at[PATH_MAX];   /* where it is: no symlinks and no `..`; "" for the root */
	char rest[PATH_MAX]; /* the path from there on */
	struct guard_link *link;
};

static int open_by(uint64_t resolve, int root, const char *path, int flags)
{
	struct open_how how = { .flags = (unsigned)flags | O_CLOEXEC,
				.resolve = resolve | RESOLVE_NO_MAGICLINKS };

	/* While anything on the machine is renamed or mounted, the kernel cannot guarantee that a `..` stays
	 * inside, and returns EAGAIN: on a busy node that is frequent. */
	for (int tries = 1;; tries++) {
		int fd = (int)syscall(SYS_openat2, root, path[0] != '\0' ? path : "/", &how, sizeof how);
		if (fd >= 0 || errno != EAGAIN || tries == MAX_TRIES)
			return fd;
	}
}

int guard_open_in_root(int root, const char *path, int flags)
{
	return open_by(RESOLVE_IN_ROOT, root, path, flags);
}

int guard_open_beneath(int root, const char *path, int flags)
{
	return open_by(RESOLVE_BENEATH, root, path, flags);
}

/* Copy a text into a path's buffer. Return -1 with errno if it is too long. */
static int fits(char path[PATH_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fits(char path[PATH_MAX], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int length = vsnprintf(path, PATH_MAX, format, args);
	va_end(args);
	if (length >= 0 && length < PATH_MAX)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

/* Go back to the directory in which the walk was before the last step. */
static void leave(struct walk *walk)
{
	char *slash = strrchr(walk->at, '/');

	if (slash != NULL)
		*slash = '\0';
}

static int is_on(int directory, int root)
{
	struct stat a, b;

	return fstat(directory, &a) == 0 && fstat(root, &b) == 0 && a.st_dev == b.st_dev;
}

/* Go to the entry `name` of the directory, and make it if it is missing. Return it as O_PATH, or -1. */
static int enter(struct walk *walk, const char *name, int is_dir)
{
	size_t length = strlen(walk->at);

	if (length + 1 + strlen(name) >= sizeof walk->at) {
		errno = ENAMETOOLONG;
		return -1;
	}
	CE_AUTO_FD above = guard_open_in_root(walk->root, walk->at, O_PATH | O_DIRECTORY);
	if (above < 0)
		return -1;
	walk->at[length] = '/';
	strcpy(walk->at + length + 1, name);
	int found = guard_open_in_root(walk->root, walk->at, O_PATH | O_NOFOLLOW);
	if (found >= 0 || errno != ENOENT)
		return found;
	if (walk->stays && !is_on(above, walk->root)) {
		errno = EXDEV;
		return -1;
	}
	int rc = is_dir ? mkdirat(above, name, 0755) : mknodat(above, name, S_IFREG | 0644, 0);
	if (rc < 0 && errno != EEXIST)
		return -1;
	return guard_open_in_root(walk->root, walk->at, O_PATH | O_NOFOLLOW);
}

/* Continue with the target of the symlink at which the walk is. */
static int follow(struct walk *walk, int entry)
{
	char rest[PATH_MAX];
	ssize_t length = readlinkat(entry, "", walk->link->target, PATH_MAX - 1);

	strcpy(walk->link->path, walk->at);
	walk->link->target[length > 0 ? length : 0] = '\0';
	if (length > 0 && ++walk->links > MOST_LINKS)
		errno = ELOOP;
	if (length <= 0 || walk->links > MOST_LINKS)
		return -1;
	memcpy(rest, walk->rest, sizeof rest);
	leave(walk);
	if (walk->link->target[0] == '/')
		walk->at[0] = '\0';
	return fits(walk->rest, "%s/%s", walk->link->target, rest);
}

/* Take the next part of the rest into `name`. Return its length, 0 at the end, or -1. */
static int take(struct walk *walk, char name[NAME_MAX + 1])
{
	const char *begin = walk->rest + strspn(walk->rest, "/");
	size_t length = strcspn(begin, "/");

	if (length > NAME_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(name, begin, length);
	name[length] = '\0';
	const char *next = begin + length + strspn(begin + length, "/");
	memmove(walk->rest, next, strlen(next) + 1);
	return (int)length;
}

/* Do the step to `name`. */
static int step(struct walk *walk, const char *name, int is_dir)
{
	struct stat st;
	int is_last = walk->rest[0] == '\0';

	if (strcmp(name, ".") == 0)
		return 0;
	if (strcmp(name, "..") == 0) {
		leave(walk);
		return 0;
	}
	CE_AUTO_FD entry = enter(walk, name, is_dir || !is_last);
	if (entry < 0 || fstat(entry, &st) < 0)
		return -1;
	if (S_ISLNK(st.st_mode))
		return follow(walk, entry);
	if (is_last || S_ISDIR(st.st_mode))
		return 0;
	errno = ENOTDIR;
	return -1;
}

static int run_walk(int root, const char *path, int is_dir, int stays, struct guard_link *link)
{
	struct walk walk = { .root = root, .stays = stays, .link = link };
	char name[NAME_MAX + 1];

	link->path[0] = link->target[0] = '\0';
	if (fits(walk.rest, "%s", path) < 0)
		return -1;
	for (;;) {
		int length = take(&walk, name);
		if (length == 0)
			return guard_open_in_root(root, walk.at, O_PATH | O_NOFOLLOW);
		if (length < 0 || step(&walk, name, is_dir) < 0)
			return -1;
	}
}

int guard_walk(int root, const char *path, int is_dir, struct guard_link *link)
{
	return run_walk(root, path, is_dir, 0, link);
}

int guard_make_here(int root, const char *path, struct guard_link *link)
{
	return run_walk(root, path, 1, 1, link);
}

int guard_make(int root, const char *path, int is_dir, struct guard_link *link)
{
	int found = guard_open_in_root(root, path, O_PATH);

	link->path[0] = link->target[0] = '\0';
	return found >= 0 ? found : guard_walk(root, path, is_dir, link);
}

int guard_fail_at(struct guard *guard, const char *what, const char *path, const struct guard_link *link)
{
	if (link->path[0] == '\0')
		return guard_fail(guard, "%s '%s' in the image", what, path);
	return guard_fail(guard, "%s '%s' in the image, where '%s' is a link to '%s'", what, path, link->path,
			  link->target);
}
