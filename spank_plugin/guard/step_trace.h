/* The line of a start's trace, as container_engine/node/report/trace.py writes it, for a start without
 * Python. */
#pragma once

#include <stdint.h>

#include "common/fields.h"
#include "step_env.h"

/* The fields of an answer about the trace of its steps: directory of the traces, the beginning of the line,
 * the part of it that the plan decides, the texts of the mounts in it, number of parts of names by which a
 * variable is secret and each of them. */
struct ce_trace_parts {
	const char *directory; /* "" for none */
	const char *begin, *of_plan, *mounts;
	struct ce_fields stems; /* number, then parts of secret variables' names, in capital letters */
};

enum { CE_MOST_PHASES = 12 };

/* The phases of a start. Each begins at a moment, in nanoseconds since 1970, and ends where the next one
 * begins. */
struct ce_phases {
	struct {
		const char *name; /* a string literal */
		int64_t begin;
	} all[CE_MOST_PHASES];
	int count;
};

/* The trace of this step; both descriptors are -1 if traces are not kept. */
struct ce_step_trace {
	int file, directory;
	char *line; /* on the heap: all but the phases */
};

/* Take the fields about the trace, into whose text *parts then points. */
void ce_trace_read(struct ce_fields *fields, struct ce_trace_parts *parts);

/* Make the trace's file, if the answer has a directory for traces. `node` is Slurm's name for this node.
 * Return 0, or -1 if anything is doubtful: also if the line would show a secret of the step. Call
 * ce_step_trace_close in either case. */
int ce_step_trace_open(struct ce_step_trace *trace, const struct ce_trace_parts *parts,
		       const struct ce_step_env *env, const char *node);

/* Add a phase. */
void ce_phase_begin(struct ce_phases *phases, const char *name, int64_t when);

/* Add the phases of a guard, whose times are lines "OPERATION NANOSECONDS" of the monotonic clock. */
void ce_phases_of_guard(struct ce_phases *phases, const char *times);

/* Append the line, with the current time as the end of the last phase. A full disk loses the trace, not the
 * step. On the step's first node, then remove the user's oldest traces if there are too many. */
void ce_step_trace_write(const struct ce_step_trace *trace, const struct ce_step_env *env,
			 const struct ce_phases *phases);

/* Close the descriptors and free the line. */
void ce_step_trace_close(struct ce_step_trace *trace);
