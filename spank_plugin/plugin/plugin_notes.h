/* What srun, salloc and sbatch say of a command line that means something else than it seems to. As the user. */
#ifndef CE_PLUGIN_NOTES_H
#define CE_PLUGIN_NOTES_H

#include <stddef.h>

enum { CE_NOTE_SIZE = 512 };

/* Return whether the command line of srun, whose words are each followed by a NUL, has an option that looks as
 * if it chose the container and does not, and put a line about it into `note`: --environment after the
 * command, or Slurm's own --container with something that is not an OCI bundle. */
int ce_note_misplaced(const char *line, size_t size, char note[CE_NOTE_SIZE]);

/* Warn of that in srun, once. */
void ce_submit_warn(void);

/* Remove from this process's environment what describes an outer container to its tasks, because this step
 * or job does not run there. If `is_step`, say so once. */
void ce_submit_leave_container(int is_step);

#endif
