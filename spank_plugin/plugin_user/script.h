/* Tells users that the script of sbatch and the shell of salloc run on the host (plugin/plugin_script.h). */
#ifndef CE_SCRIPT_H
#define CE_SCRIPT_H

#include <slurm/spank.h>

/* Set by sbatch and salloc if the environment asks for no container, so that nothing is to be explained. The
 * batch script does not see it. */
#define CE_SCRIPT_ON_HOST "SLURM_CE_HOST"

/* Print that they run on the host, once for all components of a job, unless Slurm has been asked to be quiet.
 * In sbatch and salloc. */
void ce_script_announce(int is_salloc, const char *environment);

/* Leave a note, unless the script calls `ce run`. Print a warning if the script starts no step: nothing of it
 * runs in a container. In the task, as the user. */
void ce_script_begin(spank_t spank, const char *environment);

/* Return whether a line of the script, apart from comments, has a word that starts steps. */
int ce_script_starts_steps(const char *text);

#endif
