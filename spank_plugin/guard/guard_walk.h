/* Paths of the image, resolved as in a process with its root, and made where they are missing. */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "guard.h"

/* The last symlink that a walk has followed, and what it contains; "" for none. */
struct guard_link {
	char path[PATH_MAX], target[PATH_MAX];
};

/* Open `path` as a process whose root is `root` would: symlinks of the image, even absolute ones and those
 * with too many `..`, stay inside. Return -1 with errno. */
int guard_open_in_root(int root, const char *path, int flags);

/* Open `path`, which is relative, as any process would. Return -1 with EXDEV if symlinks or `..` lead out of
 * `root`. */
int guard_open_beneath(int root, const char *path, int flags);

/* Open what is at `path`, whatever it is, as O_PATH. What is missing on the way there, also behind symlinks,
 * is made: directories, and at the end a directory or an empty file. Return -1 with errno and *link. */
int guard_make(int root, const char *path, int is_dir, struct guard_link *link);

/* Make the directory `path` as guard_make does, but nothing on another file system than the root's: that
 * fails with EXDEV. */
int guard_make_here(int root, const char *path, struct guard_link *link);

/* Find the symlinks on the way to a path that exists: like guard_make, without its short cut. */
int guard_walk(int root, const char *path, int is_dir, struct guard_link *link);

/* Record as a failure: `what`, the path, and the symlink of the image that has led astray, if any; errno is
 * kept. Return -1. */
int guard_fail_at(struct guard *guard, const char *what, const char *path, const struct guard_link *link);
