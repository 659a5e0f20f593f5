/*
 * Explains to users that the script of sbatch and the shell of salloc run on the host, unless the site runs
 * scripts in the container: those who give them an environment may expect otherwise.
 *
 * A note, a file in the user's home: no step of a batch job has asked for a container yet. The batch script's
 * task makes it, every srun of the job removes it, and slurmstepd warns if it is there at the end. Removal is
 * decided by the file server, so it is seen at once wherever the srun ran.
 */
#pragma once

#include <limits.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <sys/types.h>

/* Write the path of the note of this user's job; "" if the user has no home. */
void ce_note_path(uid_t uid, uint32_t job, char path[PATH_MAX]);

/* Make the note, and the directories above it. As the user. */
void ce_note_make(const char *path);

/* Remove the note and return whether it was there. As the user. */
int ce_note_take(const char *path);

/* Find out where the note of a batch script with an environment is. In slurmstepd, before the
 * task. For any other task this does nothing. */
void ce_script_prepare(spank_t spank, const char *environment);

/* The path of that note; "" for none. */
extern char ce_script_note[PATH_MAX];

int ce_script_is_batch(spank_t spank);

/* Return the batch script, on the heap; NULL if it cannot be read. */
char *ce_script_read(spank_t spank);

/* Print a warning if no srun of the job has removed the note, in a child that becomes the user. In
 * slurmstepd, as root, after the task. */
void ce_script_end(spank_t spank, const char *environment);

/* Prepare the holder of the job's images (guard/guard_hold.c) for a batch script whose steps may have
 * containers: an environment was given at submit, or the script has an option for one. In slurmstepd,
 * before the task. */
void ce_script_prepare_holder(spank_t spank, const char *environment);
