/*
 * Marks that keep a command from running on the host where the plugin is not loaded.
 *
 * A node that does not load the plugin does not know --environment: Slurm silently drops the option there,
 * and the command would run on the host. So srun replaces the command with a text that cannot be executed and
 * gives the reason, followed by the command; the plugin on the node removes the text again.
 */
#pragma once

#include "common/error.h"

/* Put the mark before argv[0], unless it is there already. Return 0, or -1 without memory. The new argv[0] is
 * never freed: srun holds it until it ends. In srun. */
int ce_mark_argv(char **argv, struct ce_error *err);

/* Take the mark off argv[0], in place, and return whether it was there. On a node, before any task exists. */
int ce_unmark_argv(char **argv);

/*
 * An srun that does not load the plugin (in a batch script, on a freshly installed node) does not know the
 * job's option. So sbatch and salloc put a variable into the job's environment that such an srun parses as a
 * number and cannot read: it ends and prints the value inside a message of its own. An srun with the plugin
 * removes the variable before Slurm reads it, and no task sees it. Of Slurm's programs only srun reads this
 * variable, jobs are unlikely to set it, and because its name begins with SLURM_ it survives --export=NONE,
 * as the option does.
 */
#define CE_JOB_MARK "SLURM_THREAD_SPEC"
/* the user's own value, restored by the srun that removes the mark */
#define CE_JOB_MARKED "SLURM_CE_THREAD_SPEC"

/* Put the mark into this process's environment, which becomes the job's, and keep the user's own value.
 * Return 0, or -1 without memory. In salloc and sbatch. */
int ce_mark_job(struct ce_error *err);

/* Remove the mark from the environment, and restore the user's own value. In srun, salloc and sbatch, before
 * Slurm reads the variables. */
void ce_unmark_job(void);
