/* What --environment does in srun, salloc and sbatch. */
#ifndef CE_PLUGIN_SUBMIT_H
#define CE_PLUGIN_SUBMIT_H

#include <slurm/spank.h>

#include "config.h"

/* Plans for the environment that was asked for, if one was, and lets srun carry the plan. 0, or -1: then the
 * submission must end. err has no message when the planner has printed the reason already. As the user. */
int ce_plugin_submit(const struct ce_config *config, spank_context_t context, struct ce_error *err);

/* In srun, when the step has been allocated: sees to it that no command for which a plan is carried can run on a
 * node that does not load the plugin (argv_mark.h, multi_prog.h). Not with --bcast where srun needs it as it is. */
int ce_plugin_submit_mark(spank_t spank, const struct ce_config *config, struct ce_error *err);

/* At the end of srun: removes the image store that was made for its step alone. */
void ce_plugin_submit_end(void);

#endif
