/* Reading a SquashFS file by references to inodes. All functions may be called by several threads at once; a
 * failure returns a negative errno (-EIO: the file is damaged). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

struct squash;
struct ce_figures;

/* The figures of what this process does: memory of its own, unless it gets another one's. */
extern struct ce_figures *squash_figures;

/* Open a file without reading from it. NULL if that fails; `why` is then strerror's text. */
struct squash *squash_file(const char *path, const char **why);
/* Read the file's tables. Return NULL, or a static text that says why they cannot be read as SquashFS. */
const char *squash_load(struct squash *squash);
/* Stop the thread of squash_free_when_idle, and free everything. */
void squash_close(struct squash *squash);

/* Start a thread that frees all caches once there has been no request for `seconds`, or up to twice as long.
 * The next request then reads the file again. If no thread can be started, nothing is freed. */
void squash_free_when_idle(struct squash *squash, unsigned seconds);

/* Return 1 if the file is no longer what was opened: its server has lost it, or somebody has written to it.
 * This may wait for a file server. */
int squash_is_gone(const struct squash *squash);

/* Return the root's inode reference: 48 bits, its position in the inode table. */
uint64_t squash_root(const struct squash *squash);

/* Fill in the attributes. All files are shown as root's, whatever their owner in the file: root represents
 * the one user who mounts this. */
int squash_stat(struct squash *squash, uint64_t inode, struct stat *st);
/* Fill in what statfs reports: the size of the file system, in blocks, and the number of its inodes. */
void squash_statfs(const struct squash *squash, struct statvfs *st);

/* Look up a name; the inode is in `found`. -ENOENT if the directory has no such name. */
int squash_lookup(struct squash *squash, uint64_t directory, const char *name, uint64_t *found);

struct squash_entry {
	const char *name;
	uint64_t inode;
	uint32_t number; /* as in st_ino */
	uint32_t type;	 /* S_IFMT bits */
	const struct stat *st; /* NULL if not requested, or if its inode is damaged */
};

/* Call `each` for the entries from number `first` on, in the order of their names, without "."
 * and "..", until there are none left or it returns something other than 0. `each` must not
 * call functions of this file. */
int squash_list(struct squash *squash, uint64_t directory, size_t first, int with_stat,
		int (*each)(void *context, const struct squash_entry *entry), void *context);

/* Read a symlink's target into `target`, a string that the caller frees. */
int squash_link(struct squash *squash, uint64_t inode, char **target);

/* Return whether any file of the image has an extended attribute. */
int squash_has_xattrs(const struct squash *squash);
/* Read a value, or the list of names, each with its NUL, into heap memory that the caller frees; return its
 * size. -ENODATA if there is no attribute of that name. */
int squash_xattr(struct squash *squash, uint64_t inode, const char *name, char **value);
int squash_xattrs(struct squash *squash, uint64_t inode, char **names);

/* A piece of a file: `parts` point into memory that stays valid until squash_release. */
struct squash_piece {
	struct iovec *parts;
	int count;
	struct squash_hold *holds;
	void *zeros;
};

/* Read up to `size` bytes from `offset`; fewer only at the end of the file. */
int squash_read(struct squash *squash, uint64_t inode, uint64_t offset, size_t size,
		struct squash_piece *piece);
/* Give the memory of a piece back. */
void squash_release(struct squash *squash, struct squash_piece *piece);
