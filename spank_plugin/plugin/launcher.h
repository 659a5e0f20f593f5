/*
 * The node launcher: slurmstepd prepares its inputs, the first task of the node starts it. So the launcher
 * and everything that it starts are processes of the user in the step: under its limits, in its accounting
 * and namespaces, and gone when Slurm ends the step. No privilege is involved.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol.h"
#include "config.h"

/* The places of `start`: the launcher's descriptors, then the other end of `process`, which stays with the
 * task. */
enum { CE_START_PROCESS = CE_ARG_FDS, CE_START_COUNT };

struct ce_launcher {
	int reply;   /* socket with one packet, which every task peeks at; -1 before ce_launcher_prepare */
	int life;    /* socket to the guard; -1 before ce_launcher_prepare */
	int process; /* socket with one packet, a pidfd of the launcher; -1 before ce_launcher_prepare */
	/* what a start needs; -1 once it is not needed here */
	int start[CE_START_COUNT];
	uid_t uid;   /* the user's ids, under which the launcher and the whole session run */
	gid_t gid;
	struct ce_shared *shared; /* NULL before ce_launcher_prepare */
	char planned[64]; /* when srun planned the step, which distinguishes it from others (say.h) */
	int is_terminated; /* SIGTERM ended a task of the node (session.h) */
};

#define CE_LAUNCHER_INIT { -1, -1, -1, { -1, -1, -1, -1, -1, -1 }, (uid_t)-1, (gid_t)-1, NULL, "", 0 }

/* A variable that the launcher finds after those of the job, for a fact that only slurmstepd knows: the
 * directory that the step's PMIx server shares with its clients on this node. Unset if there is none. */
#define CE_FACT_PMIX "CE_PMIX_DIR"
/* Another variable of this kind: the path of a batch script that runs in the container. Unset otherwise. */
#define CE_FACT_BATCH "CE_BATCH_SCRIPT"

/* Create the sockets of the session, and memory files with the plan and with the step's environment followed
 * by `facts` (NAME=value, NULL-terminated). The tasks inherit all of them. Return 0, or -1 with the error. In
 * slurmstepd, before there are tasks. */
int ce_launcher_prepare(struct ce_launcher *launcher, const char *plan, char **environment,
			char *const *facts, uid_t uid, gid_t gid, struct ce_error *err);

/* Close the descriptors that only a start needs: the ends of the sockets must belong to the launcher and the
 * guard alone, so that their death is noticed. In slurmstepd, once all tasks are forked. */
void ce_launcher_let_go(struct ce_launcher *launcher);

/* Return a new pidfd of the launcher, -1 if none was started. It comes from the task that started it, before
 * any program of the user's ran there, so it refers to a process in the step, which Slurm ends with the step.
 * The sockets do not prove that: the launcher's user can hand them to processes elsewhere. */
int ce_launcher_process(const struct ce_launcher *launcher);

/*
 * The memory that slurmstepd and the tasks of a node share: when the tasks joined their container and when
 * its session ended, which is the plugin's part of a launch's trace; which of them starts the launcher;
 * whether the container's death has been reported, and the node's name for messages.
 */

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

/* Append one line of JSON to the trace, with the current time as the end, and the elements of a list of JSON
 * `reads`, which may be NULL. Runs as the user, who decides what `trace` is; it may be -1. */
void ce_shared_write(const struct ce_shared *shared, int trace, const char *reads);
