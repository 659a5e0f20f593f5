/*
 * The script of sbatch and the shell of salloc run on the host, unless the site runs scripts inside. Users
 * who give them an environment may expect otherwise, so a message explains it.
 */
#ifndef CE_PLUGIN_SCRIPT_H
#define CE_PLUGIN_SCRIPT_H

#include <slurm/spank.h>

/* Set by sbatch for the batch script's task, which does not see it: the environment is the host. */
#define CE_SCRIPT_ON_HOST "SLURM_CE_HOST"

/* Print that message in sbatch and salloc, once for all components of a job, unless asked to be quiet. */
void ce_script_announce(int is_salloc, const char *environment);

/* In slurmstepd, before the task: learn where the note of a batch script with an environment is (script_note.h).
 * No-op for all other tasks, as are the next two. */
void ce_script_prepare(spank_t spank, const char *environment);

/* Print a warning if the script starts no step: nothing of it runs in a container. Leave a note. In the task,
 * as the user. */
void ce_script_begin(spank_t spank, const char *environment);

/* Print a warning if no srun of the job has removed the note. In slurmstepd, after the task. */
void ce_script_end(spank_t spank, const char *environment);

/* Return whether a line of the script, apart from comments, has a word that starts steps. */
int ce_script_starts_steps(const char *text);

#endif
