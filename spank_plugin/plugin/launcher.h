/*
 * The node launcher: slurmstepd prepares what it needs, the first task of the node starts it. So the launcher
 * and everything that it starts are processes of the user's in the step: under its limits, in its accounting
 * and namespaces, and gone when Slurm ends the step. No privilege has a part in it.
 */
#ifndef CE_LAUNCHER_H
#define CE_LAUNCHER_H

#include <sys/types.h>

#include "config.h"
#include "step_shared.h"

struct ce_launcher {
	int reply;   /* socket: one packet, which every task peeks at; -1 before ce_launcher_prepare */
	int life;    /* socket to the guard; -1 before ce_launcher_prepare */
	int start[5]; /* what the launcher is given (launcher.c); -1 once it is of no more use here */
	uid_t uid;   /* the user's: whose the launcher and all of the session is */
	gid_t gid;
	struct ce_shared *shared; /* NULL before ce_launcher_prepare */
};

#define CE_LAUNCHER_INIT { -1, -1, { -1, -1, -1, -1, -1 }, (uid_t)-1, (gid_t)-1, NULL }

/* A variable that the launcher finds behind the job's own, for what only slurmstepd knows: the
 * directory that the step's PMIx server shares with its clients on this node; without one the variable
 * does not exist. */
#define CE_FACT_PMIX "CE_PMIX_DIR"
/* Another one: the path of a batch script that shall run in the container; only then there is it. */
#define CE_FACT_BATCH "CE_BATCH_SCRIPT"

/* Makes the sockets of the session and puts the plan and the step's environment, then `facts` (NAME=value,
 * NULL at the end), into memory files, all of which the tasks inherit. In slurmstepd, before there are tasks. */
int ce_launcher_prepare(struct ce_launcher *launcher, const char *plan, char **environment,
			char *const *facts, uid_t uid, gid_t gid, struct ce_error *err);

/* Starts the launcher, if no other task of the node has; does not wait for it. `environment` is the task's,
 * for the user's resource limits, which Slurm has not set yet. A failure is the session's answer, which all
 * tasks read. Runs as the user, in a task; the launcher is not its child afterwards. */
void ce_launcher_start(struct ce_launcher *launcher, const struct ce_config *config, char **environment);

/* Closes what only a start needs: the ends of the sockets must be the launcher's and the guard's alone, so
 * that their end shows. In slurmstepd once all tasks are forked. */
void ce_launcher_let_go(struct ce_launcher *launcher);

#endif
