/* A task before its command. Runs as the user. */
#pragma once

#include "plugin/plugin_step.h"

/* Wait for the step's container and join it. On failure print the reason and end the process, which is the
 * task, with the matching exit code. In a batch script that runs on the host: start the holder of the job's
 * images, and warn of what `environment`, which was asked for, does not change; it may be NULL. */
void ce_task_begin(struct ce_step *step, spank_t spank, const struct ce_config *config,
		   const char *environment);

/* Return whether a line of the script, apart from comments, has a word that starts steps. */
int ce_script_starts_steps(const char *text);
