/* The container of one task, where each has its own. */
#ifndef CE_TASK_CONTAINER_H
#define CE_TASK_CONTAINER_H

#include "common/join.h"
#include "launcher.h"

/* Ask the guard for a container that lives as long as this process, and put its namespaces in place of those that
 * all tasks know; do nothing for a container that all tasks of the node share. Runs as the user, in the task. */
int ce_task_container(const struct ce_launcher *launcher, int timeout_s, struct ce_container *container,
		      struct ce_error *err);

#endif
