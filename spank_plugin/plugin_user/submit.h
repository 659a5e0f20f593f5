/* The effect of --environment in srun, salloc and sbatch. */
#pragma once

#include <slurm/spank.h>

#include "plugin/config.h"

/* Before Slurm looks at the environment: take back the variables that ce-host has held; restore the options
 * of the job in which the command is started; set those that variables ask for; remove the job's mark; in
 * srun make ce-prolog the task prolog, where a command cannot be marked. If it cannot be found out what the
 * command inherits, ce_submit refuses it, whatever it asks for. */
void ce_submit_begin(const struct ce_config *config, spank_context_t context, int with_pyxis);

/* Plan for the requested environment, if there is one, and put the plan into the environment that Slurm sends
 * to the nodes. Return 0, or -1: then the submission must end. err has no message if the planner has already
 * printed the reason. As the user. */
int ce_submit(const struct ce_config *config, spank_context_t context, struct ce_error *err);

/* Mark the commands, so that none for which a plan is carried can run on a node that does not load the plugin
 * (plugin/argv_mark.h, multi_prog.h). With --bcast, where srun needs the command unchanged, ce-prolog is the
 * mark. Return 0, or -1 with the error. In srun, once the step has been allocated. */
int ce_submit_mark(spank_t spank, const struct ce_config *config, struct ce_error *err);

/* Remove the image store that was made for this step alone. At the end of srun. */
void ce_submit_end(void);
