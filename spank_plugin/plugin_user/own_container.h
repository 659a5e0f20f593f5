/* Gets a task its own container, where each task has one. */
#pragma once

#include "common/join.h"
#include "plugin/launcher.h"

/* Ask the guard for a container that lives as long as this process, and put its namespaces in place of those
 * in `container`, which all tasks know; do nothing if all tasks of the node share one container. Return 0, or
 * -1 with the error. Runs as the user, in the task. */
int ce_own_container(const struct ce_launcher *launcher, int timeout_s, struct ce_container *container,
		      struct ce_error *err);
