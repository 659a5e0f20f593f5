/*
 * The memo for a step that joins a running container of its job: the launcher of an earlier step with the same plan
 * has left it beside the container (container_engine/node/kept/join_memo.py), and no Python starts.
 *
 * Its fields (common/memo_file.h): version of the engine, the plan, the container's directory, its files `image`, `made` and `files` as they were, number of images, path and identity of each, the
 * environment of its first process, the records of the tasks' environment, working directory, what step_memo.h has, and an
 * end mark.
 */
#ifndef CE_JOIN_MEMO_H
#define CE_JOIN_MEMO_H

#include <stddef.h>
#include <sys/types.h>

#include "common/memo_file.h"
#include "step_memo.h"

enum { CE_KEPT_KEY = 16 };

/* The container that a plan wants to join. */
struct ce_wanted {
	char key[CE_KEPT_KEY + 1];
	const char *directory; /* of the nodes, below which it is kept */
};

struct ce_join_memo {
	const char *plan, *directory, *image, *made, *files;
	struct ce_fields images; /* number, then path and identity */
	const char *block;	 /* NAME=value with a NUL behind each */
	size_t block_size;
	const char *records; /* see common/join.h */
	size_t records_size;
	const char *workdir;
	struct ce_step_memo step;
};

/* Parse the value of CE_CARRY_KEPT, into which wanted->directory then points. Return -1 for every doubt. */
int ce_join_wanted(const char *fact, struct ce_wanted *wanted);

/* Read a memo of this size, with a NUL after it, into which *memo then points. Return -1 for every doubt. */
int ce_join_read(const char *text, size_t size, struct ce_join_memo *memo);

/* Return whether the container's records and all files of images are what they were. */
int ce_join_is_unchanged(const struct ce_join_memo *memo);

/* Return whether the memo knows this image. */
int ce_join_knows(const struct ce_join_memo *memo, const char *image);

#endif
