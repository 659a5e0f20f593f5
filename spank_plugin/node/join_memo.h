/*
 * The memo with which a step joins a running container of its job without Python. The launcher of an earlier
 * step with the same plan has left it beside the container (container_engine/node/kept/join_memo.py).
 *
 * Its fields (common/memo_file.h): version of the engine, the plan, the container's directory, the content of
 * its files `image`, `made` and `files`, number of images, path and identity of each, the environment of the
 * container's first process, the records of the tasks' environment, working directory, the fields of
 * step_memo.h, and the word "end".
 */
#ifndef CE_JOIN_MEMO_H
#define CE_JOIN_MEMO_H

#include <stddef.h>
#include <sys/types.h>

#include "common/memo_file.h"
#include "step_memo.h"

enum { CE_KEPT_KEY = 16 };

/* The container that a plan asks to join. */
struct ce_wanted {
	char key[CE_KEPT_KEY + 1];
	const char *directory; /* on the node, below which it is kept; in the parsed text */
};

struct ce_join_memo {
	const char *plan, *directory, *image, *made, *files;
	struct ce_fields images; /* number, then path and identity */
	const char *block;	 /* NAME=value with a NUL after each */
	size_t block_size;
	const char *records; /* see common/join.h */
	size_t records_size;
	const char *workdir;
	struct ce_step_memo step;
};

/* Parse the value of CE_CARRY_KEPT, into which wanted->directory then points. Return 0, or -1 if it has
 * another form. */
int ce_join_wanted(const char *fact, struct ce_wanted *wanted);

/* Read a memo of this size, with a NUL after it, into which *memo then points. Return 0, or -1 if it is of
 * another version or anything in it is doubtful. */
int ce_join_read(const char *text, size_t size, struct ce_join_memo *memo);

/* Return whether the container's files `image`, `made` and `files`, and all files of images, are
 * unchanged. */
int ce_join_is_unchanged(const struct ce_join_memo *memo);

/* Return whether the memo has an image with this path. */
int ce_join_knows(const struct ce_join_memo *memo, const char *image);

#endif
