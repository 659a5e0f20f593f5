/*
 * The script of sbatch and the shell of salloc run on the host, unless the site wants scripts inside. Whoever gives them
 * an environment may think otherwise, and is told.
 */
#ifndef CE_PLUGIN_SCRIPT_H
#define CE_PLUGIN_SCRIPT_H

#include <slurm/spank.h>

/* In sbatch and salloc: prints that, once for all components of a job, unless they were told to be quiet. */
void ce_script_announce(int is_salloc, const char *environment);

/* In a task, as the user: where it is a batch script that starts no step, prints that nothing of it runs in a container.
 * No-op without an environment, and for all other tasks. */
void ce_script_warn(spank_t spank, const char *environment);

/* Whether a line of the script, comments apart, has a word that starts steps. */
int ce_script_starts_steps(const char *text);

#endif
