#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/io.h"
#include "guard_ops.h"
#include "guard_walk.h"

enum { MAX_FILE = 16 << 20 };

static int open_root(const char *path)
{
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

int guard_op_root_dir(struct guard *guard, char **args)
{
	const char *path = args[1];
	struct guard_link link = { 0 };
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD made = root >= 0 && path[0] == '/' ? guard_make(root, path, 1, &link) : -1;

	return made >= 0 ? 0 : guard_fail_at(guard, "cannot make the directory", path, &link);
}

int guard_op_root_place(struct guard *guard, char **args)
{
	const char *path = args[1];
	struct guard_link link = { 0 };
	struct stat st, at;

	/* the runtime says what is wrong with the source */
	if (stat(args[2], &st) < 0)
		return 0;
	int is_dir = S_ISDIR(st.st_mode) != 0;
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD place = root >= 0 ? guard_make(root, path, is_dir, &link) : -1;
	if (place < 0 || fstat(place, &at) < 0)
		return guard_fail_at(guard, "cannot make", path, &link);
	if ((S_ISDIR(at.st_mode) != 0) == is_dir)
		return 0;
	/* the runtime refuses this, but does not know by which link the path came there */
	CE_AUTO_FD again = guard_walk(root, path, is_dir, &link);
	if (again < 0 || link.path[0] == '\0')
		return 0;
	errno = is_dir ? ENOTDIR : EISDIR;
	return guard_fail_at(guard, "cannot mount anything on", path, &link);
}

/* Return the path in the root at which `path` is, on the heap; NULL if nothing is there, or out of memory. */
static char *real_path(int root, const char *path)
{
	char name[32], base[PATH_MAX], real[PATH_MAX];
	CE_AUTO_FD place = guard_open_in_root(root, path, O_PATH);

	snprintf(name, sizeof name, "/proc/self/fd/%d", root);
	ssize_t length = readlink(name, base, sizeof base);
	snprintf(name, sizeof name, "/proc/self/fd/%d", place);
	ssize_t size = place >= 0 ? readlink(name, real, sizeof real) : -1;
	return length < 0 || size < length ? NULL : strndup(real + length, (size_t)(size - length));
}

int guard_op_root_devices(struct guard *guard, char **args)
{
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD plain = root >= 0 ? guard_open_beneath(root, "dev", O_PATH | O_DIRECTORY) : -1;

	if (plain >= 0)
		return 0;
	if (root < 0 || (errno != EXDEV && errno != EAGAIN))
		return guard_fail(guard, "'/dev' in the image is not a directory");
	CE_AUTO_FREE char *real = real_path(root, "/dev");
	if (real == NULL || unlinkat(root, "dev", 0) < 0 || symlinkat(real + 1, root, "dev") < 0)
		return guard_fail(guard, "cannot change the link '/dev' in the image");
	return 0;
}

static int is_below(const char *path, const char *above)
{
	size_t length = strlen(above);

	return strncmp(path, above, length) == 0 && path[length] == '/';
}

/* Refuse a mount that would hide an earlier one, which is below it only by a link of the image: a runtime
 * sorts mounts by their destinations as they are written. */
int guard_op_root_order(struct guard *guard, char **args)
{
	size_t count = 0;
	int hidden = -1;
	CE_AUTO_FD root = open_root(args[0]);

	for (args++; args[count] != NULL;)
		count++;
	char **real = root >= 0 ? calloc(count, sizeof *real) : NULL;
	if (real == NULL)
		return guard_fail(guard, "cannot look at the places of mounts in the image");
	for (size_t i = 0; i < count && hidden < 0; i++) {
		real[i] = real_path(root, args[i]);
		for (size_t j = 0; real[i] != NULL && j < i && hidden < 0; j++) {
			if (real[j] != NULL && is_below(real[j], real[i]))
				hidden = (int)j;
		}
		errno = 0;
		if (hidden >= 0)
			guard_fail(guard,
				   "the mount on '%s' would hide the one on '%s', which is '%s' in the "
				   "image",
				   args[i], args[hidden], real[hidden]);
	}
	for (size_t i = 0; i < count; i++)
		free(real[i]);
	free(real);
	return hidden < 0 ? 0 : -1;
}

/* Open the directory of `path`; with `link`, make it if it is missing. Return -1 with errno and *link. */
static int open_parent(int root, const char *path, struct guard_link *link)
{
	const char *slash = strrchr(path, '/');
	CE_AUTO_FREE char *parent = slash != NULL ? strndup(path, (size_t)(slash - path)) : NULL;

	if (slash == NULL)
		errno = EINVAL;
	if (parent == NULL)
		return -1;
	return link != NULL ? guard_make(root, parent, 1, link) :
			      guard_open_in_root(root, parent, O_PATH | O_DIRECTORY);
}

int guard_op_root_bind(struct guard *guard, char **args)
{
	const char *source = args[0], *path = args[2];
	struct mount_attr change = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
						 MOUNT_ATTR_NODEV };
	struct guard_link link = { 0 };
	char target[32];
	struct stat st;
	CE_AUTO_FD root = open_root(args[1]);

	if (root < 0 || stat(source, &st) < 0)
		return guard_fail(guard, "cannot put '%s' into the image", source);
	CE_AUTO_FD place = guard_make(root, path, S_ISDIR(st.st_mode), &link);
	if (place < 0)
		return guard_fail_at(guard, "cannot make", path, &link);
	/* the descriptor was resolved inside the image; its name is not resolved again */
	snprintf(target, sizeof target, "/proc/self/fd/%d", place);
	if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0)
		return guard_fail(guard, "cannot put '%s' over '%s' of the image", source, path);
	CE_AUTO_FD mounted = guard_open_in_root(root, path, O_PATH);
	if (mounted < 0 || syscall(SYS_mount_setattr, mounted, "", AT_EMPTY_PATH | AT_RECURSIVE,
				   &change, sizeof change) < 0)
		return guard_fail(guard, "cannot make '%s' of the image read-only", path);
	return 0;
}

int guard_op_root_link(struct guard *guard, char **args)
{
	const char *path = args[1];
	struct guard_link link = { 0 };
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD dir = root >= 0 ? open_parent(root, path, &link) : -1;

	if (dir < 0 || (symlinkat(args[2], dir, strrchr(path, '/') + 1) < 0 && errno != EEXIST))
		return guard_fail_at(guard, "cannot make the link", path, &link);
	return 0;
}

/* Open a regular file of the image for reading and writing, and make it, and what leads to it, if there is
 * none. Return the descriptor, or -1 after guard_fail. */
static int open_regular(struct guard *guard, int root, const char *path, int flags)
{
	struct guard_link link = { 0 };
	struct stat st;
	CE_AUTO_FD made = root >= 0 ? guard_make(root, path, 0, &link) : -1;
	/* opening a FIFO would block, and meanwhile this thread would not watch the session */
	int file = made < 0 ? -1 : guard_open_in_root(root, path, O_RDWR | O_NONBLOCK | flags);

	if (file < 0 || fstat(file, &st) < 0) {
		guard_fail_at(guard, "cannot open", path, &link);
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
	CE_AUTO_FD dir = open_parent(root, path, NULL);
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
	struct guard_link link = { 0 };
	CE_AUTO_FD root = open_root(args[1]);
	CE_AUTO_FD dir = root >= 0 ? open_parent(root, path, &link) : -1;
	if (dir < 0 || replace_file(dir, strrchr(path, '/') + 1, content, size) < 0)
		return guard_fail(guard, "cannot write '%s' in the image", path);
	return 0;
}

int guard_op_root_remove(struct guard *guard, char **args)
{
	const char *path = args[1];
	CE_AUTO_FD root = open_root(args[0]);
	CE_AUTO_FD dir = root >= 0 ? open_parent(root, path, NULL) : -1;

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
