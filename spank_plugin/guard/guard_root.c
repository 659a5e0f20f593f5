#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io.h"
#include "guard_ops.h"

enum { MAX_FILE = 16 << 20, MAX_TRIES = 100000 };

/* Open `path` as a process whose root is `root` would: symlinks of the image, even absolute ones and those
 * with too many `..`, stay inside. */
static int open_in_root(int root, const char *path, int flags, mode_t mode)
{
	struct open_how how = { .flags = (unsigned)flags | O_CLOEXEC,
				.mode = (flags & O_CREAT) != 0 ? mode : 0,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

	/* While anything on the machine is renamed or mounted, the kernel cannot guarantee that a `..` stays
	 * inside, and returns EAGAIN: on a busy node that is frequent. */
	for (int tries = 1;; tries++) {
		int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
		if (fd >= 0 || errno != EAGAIN || tries == MAX_TRIES)
			return fd;
	}
}

static int make_one(int root, const char *parent, const char *name)
{
	CE_AUTO_FD dir = open_in_root(root, parent[0] != '\0' ? parent : "/", O_PATH | O_DIRECTORY, 0);

	if (dir < 0)
		return -1;
	return mkdirat(dir, name, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int make_path(int root, const char *path)
{
	CE_AUTO_FREE char *copy = strdup(path);

	if (copy == NULL)
		return -1;
	for (char *slash = copy; slash != NULL;) {
		char *name = slash + 1;
		char *next = strchr(name, '/');
		*slash = '\0';
		if (next != NULL)
			*next = '\0';
		if (*name != '\0' && make_one(root, copy, name) < 0)
			return -1;
		*slash = '/';
		if (next != NULL)
			*next = '/';
		slash = next;
	}
	return 0;
}

static int open_root(const char *path)
{
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int guard_op_root_dir(struct guard *guard, char **args)
{
	const char *path = args[1];
	CE_AUTO_FD root = open_root(args[0]);

	if (root < 0 || path[0] != '/' || make_path(root, path) < 0)
		return guard_fail(guard, "cannot make the directory '%s' in the image", path);
	return 0;
}

/* Open the directory of `path`; with `is_made`, make it if it is missing. Return -1 with errno. */
static int open_parent(int root, const char *path, int is_made)
{
	const char *slash = strrchr(path, '/');
	CE_AUTO_FREE char *parent = slash != NULL ? strndup(path, (size_t)(slash - path)) : NULL;

	if (slash == NULL)
		errno = EINVAL;
	if (parent == NULL || (is_made && make_path(root, parent) < 0))
		return -1;
	return open_in_root(root, parent[0] != '\0' ? parent : "/", O_PATH | O_DIRECTORY, 0);
}

/* Open PATH of the image to bind over it; create an empty file or directory if there is none. */
static int open_place(int root, const char *path, int is_dir)
{
	int place = open_in_root(root, path, O_PATH, 0);

	if (place >= 0 || errno != ENOENT)
		return place;
	if (is_dir)
		return make_path(root, path) < 0 ? -1 : open_in_root(root, path, O_PATH, 0);
	CE_AUTO_FD parent = open_parent(root, path, 1);
	CE_AUTO_FD file = parent < 0 ? -1
				     : open_in_root(root, path, O_WRONLY | O_CREAT | O_NONBLOCK, 0644);
	return file < 0 ? -1 : open_in_root(root, path, O_PATH, 0);
}

int guard_op_root_bind(struct guard *guard, char **args)
{
	const char *source = args[0], *path = args[2];
	struct mount_attr change = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
						 MOUNT_ATTR_NODEV };
	char target[32];
	struct stat st;
	CE_AUTO_FD root = open_root(args[1]);

	if (root < 0 || stat(source, &st) < 0)
		return guard_fail(guard, "cannot put '%s' into the image", source);
	CE_AUTO_FD place = open_place(root, path, S_ISDIR(st.st_mode));
	if (place < 0)
		return guard_fail(guard, "cannot make '%s' in the image", path);
	/* the descriptor was resolved inside the image; its name is not resolved again */
	snprintf(target, sizeof target, "/proc/self/fd/%d", place);
	if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0)
		return guard_fail(guard, "cannot put '%s' over '%s' of the image", source, path);
	CE_AUTO_FD mounted = open_in_root(root, path, O_PATH, 0);
	if (mounted < 0 || syscall(SYS_mount_setattr, mounted, "", AT_EMPTY_PATH | AT_RECURSIVE,
				   &change, sizeof change) < 0)
		return guard_fail(guard, "cannot make '%s' of the image read-only", path);
	return 0;
}

int guard_op_root_link(struct guard *guard, char **args)
{
	const char *path = args[1];
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD dir = root >= 0 ? open_parent(root, path, 1) : -1;

	if (dir < 0 || (symlinkat(args[2], dir, strrchr(path, '/') + 1) < 0 && errno != EEXIST))
		return guard_fail(guard, "cannot make the link '%s' in the image", path);
	return 0;
}

/* Open a regular file of the image for reading and writing, and create it if there is none. Return the
 * descriptor, or -1 after guard_fail. */
static int open_regular(struct guard *guard, int root, const char *path, int flags)
{
	struct stat st;
	/* opening a FIFO would block, and meanwhile this thread would not watch the session */
	int file = open_in_root(root, path, O_RDWR | O_CREAT | O_NONBLOCK | flags, 0644);

	if (file < 0 || fstat(file, &st) < 0) {
		guard_fail(guard, "cannot open '%s' in the image", path);
	} else if (!S_ISREG(st.st_mode)) {
		errno = 0;
		guard_fail(guard, "'%s' in the image is not a regular file", path);
	} else {
		return file;
	}
	ce_close_fd(&file);
	return -1;
}

int guard_op_root_first(struct guard *guard, char **args)
{
	const char *path = args[1], *line = args[2];
	size_t size = 0;
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD dir = root >= 0 ? open_parent(root, path, 1) : -1;

	if (dir < 0)
		return guard_fail(guard, "cannot open '%s' in the image", path);
	CE_AUTO_FD file = open_regular(guard, root, path, 0);
	if (file < 0)
		return -1;
	CE_AUTO_FREE char *text = ce_read_all(file, MAX_FILE, &size);
	/* an earlier step of the job has added it */
	if (text != NULL && strncmp(text, line, strlen(line)) == 0 && text[strlen(line)] == '\n')
		return 0;
	if (text == NULL || lseek(file, 0, SEEK_SET) < 0 ||
	    ce_write_all(file, line, strlen(line)) < 0 || ce_write_all(file, "\n", 1) < 0 ||
	    ce_write_all(file, text, size) < 0)
		return guard_fail(guard, "cannot add a line to '%s' in the image", path);
	return 0;
}

int guard_op_root_setting(struct guard *guard, char **args)
{
	const char *path = args[1], *text = args[2];
	CE_AUTO_FD root = open_root(args[0]);

	if (root < 0)
		return guard_fail(guard, "cannot make '%s' in the image", path);
	CE_AUTO_FD dir = open_parent(root, path, 0);
	if (dir < 0 && (errno == ENOMEM || errno == EINVAL))
		return guard_fail(guard, "cannot make '%s' in the image", path);
	if (dir < 0)
		return 0; /* the image does not have what the setting is for */
	CE_AUTO_FD file = open_regular(guard, root, path, O_TRUNC);
	if (file < 0)
		return -1;
	if (ce_write_all(file, text, strlen(text)) < 0)
		return guard_fail(guard, "cannot write '%s' in the image", path);
	return 0;
}

/* Write a new file beside the one at `name`, and rename it to `name`. Return 0, or -1 with errno. */
static int replace_file(int dir, const char *name, const char *content, size_t size)
{
	CE_AUTO_FREE char *draft = NULL;

	if (asprintf(&draft, "%s.ce-new", name) < 0)
		return -1;
	CE_AUTO_FD file =
		openat(dir, draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	if (file < 0 || ce_write_all(file, content, size) < 0)
		return -1;
	return renameat(dir, draft, dir, name);
}

int guard_op_root_copy(struct guard *guard, char **args)
{
	const char *source = args[0], *path = args[2];
	size_t size = 0;
	CE_AUTO_FREE char *content = ce_read_path(AT_FDCWD, source, O_NOFOLLOW, MAX_FILE, &size);

	if (content == NULL)
		return guard_fail(guard, "cannot read '%s'", source);
	CE_AUTO_FD root = open_root(args[1]);
	CE_AUTO_FD dir = root >= 0 ? open_parent(root, path, 1) : -1;
	if (dir < 0 || replace_file(dir, strrchr(path, '/') + 1, content, size) < 0)
		return guard_fail(guard, "cannot write '%s' in the image", path);
	return 0;
}

int guard_op_root_remove(struct guard *guard, char **args)
{
	const char *path = args[1];
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD dir = root >= 0 ? open_parent(root, path, 0) : -1;

	if (dir < 0 || unlinkat(dir, strrchr(path, '/') + 1, 0) < 0)
		return guard_fail(guard, "cannot remove '%s' from the image", path);
	return 0;
}

/* Return whether the text has a line `name:x:ID:…` with this id. */
static int has_id(const char *text, const char *id)
{
	size_t length = strlen(id);

	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *end = line + strcspn(line, "\n");
		const char *colon = memchr(line, ':', (size_t)(end - line));
		if (colon == NULL)
			continue;
		colon = memchr(colon + 1, ':', (size_t)(end - colon - 1));
		if (colon != NULL && strncmp(colon + 1, id, length) == 0 &&
		    (colon[1 + length] == ':' || colon[1 + length] == '\n' ||
		     colon[1 + length] == '\0'))
			return 1;
	}
	return 0;
}

int guard_op_root_entry(struct guard *guard, char **args)
{
	const char *path = args[1], *id = args[2], *line = args[3];
	size_t size = 0;
	CE_AUTO_FD root = open_root(args[0]);

	if (root < 0 || make_path(root, "/etc") < 0)
		return guard_fail(guard, "cannot make '/etc' in the image");
	CE_AUTO_FD file = open_regular(guard, root, path, O_APPEND);
	if (file < 0)
		return -1;
	CE_AUTO_FREE char *text = ce_read_all(file, MAX_FILE, &size);
	if (text == NULL)
		return guard_fail(guard, "cannot read '%s' in the image", path);
	if (has_id(text, id))
		return 0;
	if ((size > 0 && text[size - 1] != '\n' && ce_write_all(file, "\n", 1) < 0) ||
	    ce_write_all(file, line, strlen(line)) < 0 || ce_write_all(file, "\n", 1) < 0)
		return guard_fail(guard, "cannot add an entry to '%s' in the image", path);
	return 0;
}
