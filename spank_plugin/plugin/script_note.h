/*
 * A note, a file in the user's home: no step of a batch job has asked for a container yet. The batch script's
 * task makes it, every srun of the job removes it, and slurmstepd warns if it is there at the end. Removal is
 * decided by the file server, so it is seen at once wherever the srun ran.
 */
#ifndef CE_SCRIPT_NOTE_H
#define CE_SCRIPT_NOTE_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* Write the path of the note of this user's job; "" if the user has no home. */
void ce_note_path(uid_t uid, uint32_t job, char path[PATH_MAX]);

/* Make the note, and the directories above it. As the user. */
void ce_note_make(const char *path);

/* Remove the note and return whether it was there. As the user. */
int ce_note_take(const char *path);

#endif
