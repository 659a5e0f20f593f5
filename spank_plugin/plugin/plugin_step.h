/* A step with a container, as slurmstepd keeps it and each task inherits it. */
#pragma once

#include <slurm/spank.h>

#include "audit.h"
#include "config.h"
#include "launcher.h"

struct ce_step {
	struct ce_launcher launcher;
	/* Why there is no container, if that is known before the tasks exist. user_init must not fail: srun
	 * 22.05 then ends with exit code 0. The tasks fail instead. */
	struct ce_error start_error;
	int session_wanted;
	int has_prolog;
	int has_chdir; /* srun has the option --chdir */
	int chose_mpi;	/* the user gave --mpi= */
	uint32_t forked, exited; /* tasks of this node */
	struct ce_audit audit;
};

#define CE_STEP_INIT { .launcher = CE_LAUNCHER_INIT, .start_error = CE_ERROR_INIT }

/* Return the environment of the step, or of the task in a task; NULL if Slurm does not give it. */
char **ce_step_environment(spank_t spank);

/* Return whether this is the task that prints what concerns all tasks of the node. */
int ce_step_is_first_task(spank_t spank);

/* Prepare what the first task needs to start the launcher, if this step needs a container. `stepd` is the pid
 * of slurmstepd, `is_prepared` is what ce_step_unmark has returned. In slurmstepd, as root with the user's
 * effective id. */
void ce_step_prepare(struct ce_step *step, spank_t spank, const struct ce_config *config, pid_t stepd,
		     int is_prepared);

/* Take srun's mark off the command of any step (argv_mark.h), and return whether srun has prepared this step
 * for a container, which the mark or a carried plan shows. In slurmstepd, before there are tasks. */
int ce_step_unmark(spank_t spank);

/* Make the tasks of a prepared step fail because its option did not arrive: if Slurm cannot pass an option to
 * a plugin, it drops it with only a line in slurmd's log. In slurmstepd, before there are tasks. */
void ce_step_refuse(struct ce_step *step);

/* End the process, which is a task, with the step's error: for what it would do, code is missing. */
__attribute__((noreturn)) void ce_step_end_task(const struct ce_step *step, spank_t spank);

/* Write the line of the audit, if the site wants one and it has not been written yet. In slurmstepd, as
 * root. */
void ce_step_audit(struct ce_step *step, const struct ce_config *config);

/* Register the task that was forked last. In slurmstepd, as root. */
void ce_step_guard_task(struct ce_step *step, spank_t spank);

/* Count the end of a task. After the last one of the node, end the session, while the rest of the step is
 * still alive. In slurmstepd, as root. */
void ce_step_task_exit(struct ce_step *step, spank_t spank);

/* End the session, if that has not been done yet, and reset the step. In slurmstepd, as root. */
void ce_step_end(struct ce_step *step, spank_t spank);
