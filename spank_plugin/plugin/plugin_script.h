/*
 * The script of sbatch and the shell of salloc run on the host, unless the site runs scripts inside. Users
 * who give them an environment may expect otherwise, so a message explains it.
 */
#ifndef CE_PLUGIN_SCRIPT_H
#define CE_PLUGIN_SCRIPT_H

#include <slurm/spank.h>

/* Print that message in sbatch and salloc, once for all components of a job, unless asked to be quiet. */
void ce_script_announce(int is_salloc, const char *environment);

/* Print a warning if the task is a batch script that starts no step: nothing of it runs in a container. No-op
 * without an environment, and for all other tasks. In a task, as the user. */
void ce_script_warn(spank_t spank, const char *environment);

/* Return whether a line of the script, apart from comments, has a word that starts steps. */
int ce_script_starts_steps(const char *text);

#endif
