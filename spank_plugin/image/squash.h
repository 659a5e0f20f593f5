/* Reading a SquashFS file: what stands in it, by references to inodes. All functions may be called by several
 * threads at once; what fails returns a negative errno (-EIO: the file is damaged). */
#ifndef CE_SQUASH_H
#define CE_SQUASH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

struct squash;

/* NULL when the file cannot be read as SquashFS; `why` then is a static text, or the system's for errno. */
struct squash *squash_open(const char *path, const char **why);
/* The same in two steps: opened, and nothing of it read yet; then its tables. NULL, or why they cannot be read. */
struct squash *squash_file(const char *path, const char **why);
const char *squash_load(struct squash *squash);
void squash_close(struct squash *squash);

/* What names an inode: 48 bits, where it lies in the table of inodes. */
uint64_t squash_root(const struct squash *squash);

/* All files are shown as root's, whoever they were made by: root stands for the one user who mounts this. */
int squash_stat(struct squash *squash, uint64_t inode, struct stat *st);
void squash_statfs(const struct squash *squash, struct statvfs *st);

/* The inode in `found`; -ENOENT where the directory has no such name. */
int squash_lookup(struct squash *squash, uint64_t directory, const char *name, uint64_t *found);

struct squash_entry {
	const char *name;
	uint64_t inode;
	uint32_t number; /* as in st_ino */
	uint32_t type;	 /* S_IFMT bits */
	const struct stat *st; /* NULL when not asked for, or when its inode is damaged */
};

/* Calls `each` for the entries from number `first` on, in the order of their names, without "." and "..", until
 * there are none or it returns something else than 0. It must not call functions of this file. */
int squash_list(struct squash *squash, uint64_t directory, size_t first, int with_stat,
		int (*each)(void *context, const struct squash_entry *entry), void *context);

/* The target in `target`, a string that the caller frees. */
int squash_link(struct squash *squash, uint64_t inode, char **target);

/* Whether any file of the image has an extended attribute. */
int squash_has_xattrs(const struct squash *squash);
/* A value or the list of names, each with its NUL, in heap memory that the caller frees; the size is returned.
 * -ENODATA where there is none of that name. */
int squash_xattr(struct squash *squash, uint64_t inode, const char *name, char **value);
int squash_xattrs(struct squash *squash, uint64_t inode, char **names);

/* A piece of a file: `parts` point into memory that stays until squash_release. */
struct squash_piece {
	struct iovec *parts;
	int count;
	struct squash_hold *holds;
	void *zeros;
};

/* Up to `size` bytes from `offset`; fewer only at the end of the file. */
int squash_read(struct squash *squash, uint64_t inode, uint64_t offset, size_t size,
		struct squash_piece *piece);
void squash_release(struct squash *squash, struct squash_piece *piece);

#endif
