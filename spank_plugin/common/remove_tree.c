#define _GNU_SOURCE
#include "remove_tree.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io.h"

/* Each level needs a descriptor, so directories that are deeper are first moved up to the top. */
enum { MOST_LEVELS = 64 };

struct removal {
	int top;	/* the directory that is removed */
	unsigned moved; /* how many directories were too deep and are below `top` now */
};

/* Return a descriptor to read and change a directory, -1 for anything else. The mode is changed first: a user
 * who is root in the container, and overlayfs itself, make directories that nobody may read. */
static int open_directory(int parent, const char *name)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS };
	CE_AUTO_FD place = (int)syscall(SYS_openat2, parent, name, &how, sizeof how);
	char path[32];

	if (place < 0)
		return -1;
	snprintf(path, sizeof path, "/proc/self/fd/%d", place);
	(void)chmod(path, 0700);
	return openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void remove_below(struct removal *removal, int parent, const char *name, unsigned level);

static void empty(struct removal *removal, int directory, unsigned level)
{
	CE_AUTO_DIR *dir = fdopendir(directory);
	const char *name;

	if (dir == NULL)
		close(directory);
	while (dir != NULL && (name = ce_next_name(dir)) != NULL)
		remove_below(removal, dirfd(dir), name, level);
}

static void remove_below(struct removal *removal, int parent, const char *name, unsigned level)
{
	char above[32];

	if (unlinkat(parent, name, 0) == 0 || unlinkat(parent, name, AT_REMOVEDIR) == 0)
		return;
	int fd = open_directory(parent, name);
	if (fd < 0)
		return;
	if (level < MOST_LEVELS) {
		empty(removal, fd, level + 1);
		(void)unlinkat(parent, name, AT_REMOVEDIR);
		return;
	}
	close(fd);
	snprintf(above, sizeof above, ".deep-%u", removal->moved);
	if (renameat(parent, name, removal->top, above) == 0)
		removal->moved++;
}

void ce_remove_tree(int parent, const char *name)
{
	struct removal removal = { .moved = 0 };
	unsigned before;

	if (unlinkat(parent, name, 0) == 0)
		return;
	CE_AUTO_FD top = removal.top = open_directory(parent, name);
	if (top < 0)
		return;
	do {
		before = removal.moved;
		empty(&removal, openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
	} while (removal.moved > before);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
}
