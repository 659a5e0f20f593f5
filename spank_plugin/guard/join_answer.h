/*
 * The recorded answer with which a step joins a running container of its job without Python. The launcher of
 * an earlier step with the same plan has left it beside the container
 * (container_engine/node/kept/recorded_join.py).
 *
 * Its request is the container's directory, a newline and the plan. The fields of its result: number of
 * images and the path of each, the environment of the container's first process, the records of the tasks'
 * environment, working directory, and the fields of step_trace.h.
 */
#pragma once

#include <stddef.h>

#include "common/fields.h"
#include "step_trace.h"

enum { CE_KEPT_KEY = 16 };

/* The container that a plan asks to join. */
struct ce_wanted {
	char key[CE_KEPT_KEY + 1];
	const char *directory; /* on the node, below which it is kept; in the parsed text */
};

struct ce_join_answer {
	struct ce_fields images; /* number, then the paths */
	const char *block;	 /* NAME=value with a NUL after each */
	size_t block_size;
	const char *records; /* see common/join.h */
	size_t records_size;
	const char *workdir;
	struct ce_trace_parts trace;
};

/* Parse the value of CE_CARRY_KEPT, into which wanted->directory then points. Return 0, or -1 if it has
 * another form. */
int ce_join_wanted(const char *fact, struct ce_wanted *wanted);

/* Read the result of an answer, into which *join then points. Return 0, or -1 if it has another form. */
int ce_join_read(struct ce_fields result, struct ce_join_answer *join);

/* Return whether the container has an image with this path. */
int ce_join_knows(const struct ce_join_answer *join, const char *image);
