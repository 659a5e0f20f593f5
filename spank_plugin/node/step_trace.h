/* The line of a start's trace, as container_engine/node/report/trace.py writes it, for a start without
 * Python. */
#ifndef CE_STEP_TRACE_H
#define CE_STEP_TRACE_H

#include <stdint.h>

#include "step_memo.h"

/* Moments of a start, in nanoseconds since 1970. */
struct ce_moments {
	int64_t launch, prepare, namespaces, environment, answer, end;
	const char *guard; /* its stamps: a line "OPERATION NANOSECONDS" each; NULL if it has only joined */
};

/* The trace of this step; both descriptors are -1 if traces are not kept. */
struct ce_step_trace {
	int file, directory;
	char *line; /* on the heap: all but the phases */
};

/* Make the trace's file, if the memo has a directory for traces. `node` is Slurm's name for this node. Return
 * 0, or -1 if anything is doubtful, also if so many traces are there that old ones have to be removed. Call
 * ce_step_trace_close in either case. */
int ce_step_trace_open(struct ce_step_trace *trace, const struct ce_step_memo *memo,
		       const struct ce_step_env *env, const char *node);

/* Append the line. A full disk loses the trace, not the step. */
void ce_step_trace_write(const struct ce_step_trace *trace, const struct ce_step_env *env,
			 const struct ce_moments *moments);

/* Close the descriptors and free the line. */
void ce_step_trace_close(struct ce_step_trace *trace);

#endif
