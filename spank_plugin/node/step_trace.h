/* The line of a start's trace, as container_engine/node/report/trace.py writes it, for a start without Python. */
#ifndef CE_STEP_TRACE_H
#define CE_STEP_TRACE_H

#include <stdint.h>

#include "step_memo.h"

/* Moments of a start, in nanoseconds since 1970. */
struct ce_moments {
	int64_t launch, prepare, namespaces, environment, answer, end;
	const char *guard; /* its own, of a container that it makes: lines of an operation and its time; NULL for none */
};

/* The trace of this step; both are -1 without a directory of traces. */
struct ce_step_trace {
	int file, directory;
	char *line; /* on the heap: all but the phases */
};

/* Make the trace's file. `node` is Slurm's name for this one. Return -1 for every doubt: also if there are so many old
 * traces that some have to be removed. The caller calls ce_step_trace_close in either case. */
int ce_step_trace_open(struct ce_step_trace *trace, const struct ce_step_memo *memo, const struct ce_step_env *env,
		       const char *node);

/* Append the line. A full disk loses the trace, not the step. */
void ce_step_trace_write(const struct ce_step_trace *trace, const struct ce_step_env *env,
			 const struct ce_moments *moments);

void ce_step_trace_close(struct ce_step_trace *trace);

/* Return the current time in nanoseconds since 1970. */
int64_t ce_time_ns(void);

#endif
