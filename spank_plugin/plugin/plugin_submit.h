/* The effect of --environment in srun, salloc and sbatch. */
#ifndef CE_PLUGIN_SUBMIT_H
#define CE_PLUGIN_SUBMIT_H

#include <slurm/spank.h>

#include "config.h"

/* Note that what the command inherits could not be read, for this reason (errno): ce_plugin_submit refuses it
 * then, whatever it asks for. */
void ce_plugin_submit_unknown(int reason);

/* Plan for the requested environment, if there is one, and put the plan into the environment that Slurm sends
 * to the nodes. Return 0, or -1: then the submission must end. err has no message if the planner has already
 * printed the reason. As the user. */
int ce_plugin_submit(const struct ce_config *config, spank_context_t context, struct ce_error *err);

/* Mark the commands, so that none for which a plan is carried can run on a node that does not load the plugin
 * (argv_mark.h, multi_prog.h). With --bcast, where srun needs the command unchanged, leave that to
 * plugin_prolog.h. Return 0, or -1 with the error. In srun, once the step has been allocated. */
int ce_plugin_submit_mark(spank_t spank, const struct ce_config *config, struct ce_error *err);

/* Remove the image store that was made for this step alone. At the end of srun. */
void ce_plugin_submit_end(void);

#endif
