/*
 * Starting the node launcher from slurmstepd's user_init: the one place where a privilege is dropped.
 */
#ifndef CE_LAUNCHER_H
#define CE_LAUNCHER_H

#include <sys/types.h>

#include "config.h"
#include "moments.h"

struct ce_launcher {
	int reply;   /* socket: one packet, which every task peeks at; -1 before a start */
	int life;    /* socket to the guard; -1 before a start */
	int process; /* pidfd of the launcher */
	uid_t uid;   /* the user's: whose the launcher and all of the session is */
	gid_t gid;
	struct ce_moments *moments; /* NULL before a start, or where there are none */
};

#define CE_LAUNCHER_INIT { -1, -1, -1, (uid_t)-1, (gid_t)-1, NULL }

/* A variable that the launcher finds behind the job's own, for what only slurmstepd knows: the
 * directory that the step's PMIx server shares with its clients on this node; without one the variable
 * does not exist. */
#define CE_FACT_PMIX "CE_PMIX_DIR"
/* Another one: the path of a batch script that shall run in the container; only then there is it. */
#define CE_FACT_BATCH "CE_BATCH_SCRIPT"

/* Forks a child that becomes the user for good (groups, gid, uid, verified) and executes the node
 * launcher with the plan and the step's environment, then `facts` (NAME=value, NULL at the end), in
 * memory files. Does not wait for it.
 * Runs as root or with the user as effective id; this process keeps its identity. */
int ce_launcher_start(struct ce_launcher *launcher, const struct ce_config *config,
		      const char *plan, char **environment, char *const *facts, uid_t uid,
		      gid_t gid, struct ce_error *err);

#endif
