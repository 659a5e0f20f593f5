/* A step with a container, as slurmstepd has it and each task inherits it. */
#ifndef CE_PLUGIN_STEP_H
#define CE_PLUGIN_STEP_H

#include <slurm/spank.h>

#include "audit.h"
#include "config.h"
#include "launcher.h"

struct ce_step {
	struct ce_launcher launcher;
	/* Why the container cannot be had, known before the tasks exist. user_init must not fail: srun
	 * 22.05 then ends with exit code 0. The tasks fail instead. */
	struct ce_error start_error;
	int session_wanted;
	int has_prolog;
	uint32_t forked, exited; /* tasks of this node */
	struct ce_audit audit;
	char planned[64]; /* when srun planned it, which tells it from others (say.h) */
};

#define CE_STEP_INIT { .launcher = CE_LAUNCHER_INIT, .start_error = CE_ERROR_INIT }

/* Prepares what the first task needs to start the launcher, if this step is to have a container. In
 * slurmstepd, as root with the user as effective id. `stepd` is the pid of slurmstepd. */
void ce_step_prepare(struct ce_step *step, spank_t spank, const struct ce_config *config, pid_t stepd);

/* Takes srun's mark off the command of any step (argv_mark.h), and returns whether srun has prepared this step for a
 * container: by the mark, or by what it carried. In slurmstepd, before there are tasks. */
int ce_step_unmark(spank_t spank);

/* For such a step whose option did not arrive: its tasks fail. Slurm drops an option that it cannot give to a plugin
 * with no more than a line in slurmd's log. */
void ce_step_refuse(struct ce_step *step);

/* Writes the line of the audit, if the site wants one and it has not been written. In slurmstepd, as root. */
void ce_step_audit(struct ce_step *step, const struct ce_config *config);

/* Notes the task that was forked last. In slurmstepd, as root. */
void ce_step_guard_task(struct ce_step *step, spank_t spank);

/* Notes the end of a task; ends the session behind the last one of the node, while what is left of the step is
 * still alive. In slurmstepd, as root. */
void ce_step_task_exit(struct ce_step *step, spank_t spank);

/* Ends the session, if that has not been done, and forgets the step. In slurmstepd, as root. */
void ce_step_end(struct ce_step *step, spank_t spank);

#endif
