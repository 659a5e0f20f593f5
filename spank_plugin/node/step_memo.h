/*
 * What a memo of a start has about its step, whether that joins a container or starts one: number of conditions of hooks and
 * each of them, directory of the traces, the beginning of the trace's line and the part of it that the plan decides, the
 * texts of the mounts in it, number of stems of secret variables and each of them.
 */
#ifndef CE_STEP_MEMO_H
#define CE_STEP_MEMO_H

#include <stddef.h>

#include "common/memo_file.h"

struct ce_step_memo {
	struct ce_fields conditions; /* number, then NAME or NAME=pattern */
	const char *traces;	     /* "" for none */
	const char *trace_begin, *trace_plan, *trace_mounts;
	struct ce_fields stems; /* number, then text in capital letters */
};

/* The environment of a step before it has tasks, as a block. */
struct ce_step_env {
	const char *text;
	size_t size;
};

/* Return the value of a variable, NULL if it is unset; the last one counts. */
const char *ce_step_variable(const struct ce_step_env *env, const char *name);

/* Return whether the value of a variable is a number of Slurm's; NULL is none. */
int ce_is_number(const char *text);

/* Take the fields about a step. */
void ce_step_read(struct ce_fields *fields, struct ce_step_memo *memo);

/* Return whether the step's variables are such that the memo says what Python would. */
int ce_step_suits(const struct ce_step_memo *memo, const struct ce_step_env *env);

#endif
