/* What srun, salloc and sbatch say of a command line that means something else than it seems to. As the user. */
#ifndef CE_PLUGIN_SUBMIT_CHECKS_H
#define CE_PLUGIN_SUBMIT_CHECKS_H

#include <stddef.h>

#include "common/error.h"

enum { CE_NOTE_SIZE = 512 };
enum ce_note { CE_NOTE_NONE, CE_NOTE_WARNING, CE_NOTE_REFUSAL };

/* Check whether the command line of srun, whose words are each followed by a NUL, has an option that looks as
 * if it chose the container and does not, and put a line about it into `note`: --environment after the
 * command, or Slurm's own --container with something that is not an OCI bundle. It is a refusal if that
 * is the name or the file of an environment. */
enum ce_note ce_note_misplaced(const char *line, size_t size, char note[CE_NOTE_SIZE]);

/* Check srun's own command line: warn of such an option once, or fail if it is a refusal. */
int ce_submit_check_line(struct ce_error *err);

/* Remove from this process's environment what describes an outer container to its tasks, because this step
 * or job does not run there. If `is_step`, say so once. */
void ce_submit_leave_container(int is_step);

#endif
