/* Lets a task join its container. */
#ifndef CE_PLUGIN_TASK_H
#define CE_PLUGIN_TASK_H

#include "plugin_step.h"

/* Wait for the container and join it. On failure print the reason and end the process, which is the task,
 * with the matching exit code. In the task, as the user. */
void ce_task_join(struct ce_step *step, spank_t spank, const struct ce_config *config);

#endif
