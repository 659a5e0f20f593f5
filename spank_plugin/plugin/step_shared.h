/*
 * The memory that slurmstepd and the tasks of a node share: when the tasks joined their container and when
 * its session ended, which is the plugin's part of a launch's trace; which of them starts the launcher;
 * whether the container's death has been reported, and the node's name for messages.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { CE_NODE_SIZE = 256 };

/* Times are in nanoseconds since 1970; 0 for what has not happened. Every task of the node can write here, so
 * the user can write anything: the values are only printed, by a process of the same user. */
struct ce_shared {
	_Atomic int64_t first_join;
	_Atomic int64_t last_join;
	_Atomic int64_t joined; /* how many tasks */
	_Atomic int64_t started; /* a task has started the launcher, or is about to */
	_Atomic int64_t reported; /* the container's death has been reported, or is about to be */
	char node[CE_NODE_SIZE]; /* Slurm's name for the node, which only tasks know; "" until then */
};

/* Map memory that children share, freed when the process ends. Return NULL on failure. */
struct ce_shared *ce_shared_make(void);

/* Record that a task has joined. In the task. */
void ce_shared_join(struct ce_shared *shared);

/* Record the node's name, the same in each task. `shared` and `name` may be NULL. */
void ce_shared_name(struct ce_shared *shared, const char *name);

/* Append one line of JSON to the trace, with the current time as the end. Runs as the user, who decides what
 * `trace` is; it may be -1. */
void ce_shared_write(const struct ce_shared *shared, int trace);
