/*
 * What slurmstepd and the tasks of a node share: when the tasks joined their container and when its session
 * ended, the plugin's part of a launch's trace; which of them starts the launcher; whether the user knows why
 * it died, and of which node to speak.
 */
#ifndef CE_STEP_SHARED_H
#define CE_STEP_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

enum { CE_NODE_SIZE = 256 };

/* Nanoseconds since 1970; 0 for what has not happened. Shared with every task of the node, whose
 * user may write here what he likes: it is only ever printed, by a process of his. */
struct ce_shared {
	_Atomic int64_t first_join;
	_Atomic int64_t last_join;
	_Atomic int64_t joined; /* how many tasks */
	_Atomic int64_t started; /* a task has started the launcher, or is about to */
	_Atomic int64_t told;	/* somebody has said, or is about to say, why the container died */
	char node[CE_NODE_SIZE]; /* Slurm's name for it, which only tasks know; "" for not yet */
};

/* Now, in nanoseconds since 1970. */
int64_t ce_now_ns(void);

/* Memory that children share, freed by the end of the process. NULL where there is none. */
struct ce_shared *ce_shared_make(void);

/* Notes that a task has joined. In the task; `shared` may be NULL. */
void ce_shared_join(struct ce_shared *shared);

/* Notes the node's name, the same in each task. `shared` and `name` may be NULL. */
void ce_shared_name(struct ce_shared *shared, const char *name);

/* Appends one line of JSON to the trace: the end is now. As the user: what `trace` is, he decides.
 * `shared` may be NULL, `trace` -1. */
void ce_shared_write(const struct ce_shared *shared, int trace);

#endif
