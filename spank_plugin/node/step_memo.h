/*
 * The fields of a memo about its step, whether that joins a container or starts one: number of conditions of
 * hooks and each of them, directory of the traces, the beginning of the trace's line, the part of the line
 * that the plan decides, the texts of the mounts in it, number of parts of names by which a variable is
 * secret and each of them.
 */
#ifndef CE_STEP_MEMO_H
#define CE_STEP_MEMO_H

#include <stddef.h>

#include "common/memo_file.h"

struct ce_step_memo {
	struct ce_fields conditions; /* number, then NAME or NAME=pattern */
	const char *traces;	     /* "" for none */
	const char *trace_begin, *trace_plan, *trace_mounts;
	struct ce_fields stems; /* number, then parts of secret variables' names, in capital letters */
};

/* The environment of a step before it has tasks: NAME=value with a NUL after each. */
struct ce_step_env {
	const char *text;
	size_t size;
};

/* Return the value of a variable, the last one if it is set twice; NULL if it is unset. */
const char *ce_step_variable(const struct ce_step_env *env, const char *name);

/* Return whether the text is a number of Slurm's, which has only digits. It is not if it is NULL. */
int ce_is_number(const char *text);

/* Take the fields about a step; they point into the memo. */
void ce_step_read(struct ce_fields *fields, struct ce_step_memo *memo);

/* Return whether the memo is right for a step with these variables: no hook's condition may hold, no fact is
 * set that only Python understands, and no secret is in the trace's text. */
int ce_step_suits(const struct ce_step_memo *memo, const struct ce_step_env *env);

#endif
