/* Starts what serves the whole step on a node. In a task, as the user. */
#pragma once

#include "plugin/launcher.h"

/* Start the launcher, if no other task of the node has; do not wait for it. Then close what only a start
 * needs, in this task. `environment` is the task's and holds the user's resource limits, which Slurm has not
 * set yet. A failure becomes the session's answer, which all tasks read. Runs as the user, in a task; the
 * launcher is not its child afterwards. */
void ce_launcher_start(struct ce_launcher *launcher, const struct ce_config *config, char **environment);

/* Start the holder; without one, each step mounts its images itself. Runs as the user, in the batch script's
 * task before it executes the script; the holder is not its child afterwards. */
void ce_holder_start(const struct ce_config *config, char **environment);

/* Set the soft limits of this process that Slurm passes in variables SLURM_RLIMIT_NAME=[U]number, as far as
 * the hard limits allow. Slurm itself sets them in a task only just before it executes the command. A limit
 * that cannot be parsed or set stays as it is. */
void ce_limits_apply(char **environment);
