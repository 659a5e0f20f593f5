/* A task on its way into its container. */
#ifndef CE_PLUGIN_TASK_H
#define CE_PLUGIN_TASK_H

#include "plugin_step.h"

/* Waits for the container and joins it. Where that cannot be, the reason is said and the process, which
 * is the task, ends with the exit code that it means. In the task, as the user. */
void ce_task_join(struct ce_step *step, spank_t spank, const struct ce_config *config);

#endif
