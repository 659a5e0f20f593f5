/*
 * Explains to users that the script of sbatch and the shell of salloc run on the host, unless the site runs
 * scripts in the container: those who give them an environment may expect otherwise.
 */
#ifndef CE_PLUGIN_SCRIPT_H
#define CE_PLUGIN_SCRIPT_H

#include <slurm/spank.h>

/* Set by sbatch and salloc if the environment asks for no container, so that nothing is to be explained. The
 * batch script does not see it. */
#define CE_SCRIPT_ON_HOST "SLURM_CE_HOST"

/* Print that they run on the host, once for all components of a job, unless Slurm has been asked to be quiet.
 * In sbatch and salloc. */
void ce_script_announce(int is_salloc, const char *environment);

/* Find out where the note of a batch script with an environment is (script_note.h). In slurmstepd, before the
 * task. For any other task this and the next two functions do nothing. */
void ce_script_prepare(spank_t spank, const char *environment);

/* Leave a note, unless the script calls `ce run`. Print a warning if the script starts no step: nothing of it
 * runs in a container. In the task, as the user. */
void ce_script_begin(spank_t spank, const char *environment);

/* Print a warning if no srun of the job has removed the note, in a child that becomes the user. In
 * slurmstepd, as root, after the task. */
void ce_script_end(spank_t spank, const char *environment);

/* Prepare the holder of the job's images (image_holder.h) for a batch script whose steps may have containers:
 * an environment was given at submit, or the script has an option for one. In slurmstepd, before the task. */
void ce_script_prepare_holder(spank_t spank, const char *environment);

/* Return whether a line of the script, apart from comments, has a word that starts steps. */
int ce_script_starts_steps(const char *text);

#endif
