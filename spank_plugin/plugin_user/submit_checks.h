/* Checks command lines of srun, salloc and sbatch that mean something else than they seem to, and removes
 * what describes another container. Runs in these, as the user. */
#pragma once

#include "common/error.h"
#include "srun_options.h"

enum { CE_NOTE_SIZE = 512 };
enum ce_note { CE_NOTE_NONE, CE_NOTE_WARNING, CE_NOTE_REFUSAL };

/* Check whether the command line has an option that looks as if it chose the container and does not, and
 * put a line about it into `note`: --environment or an option of pyxis after the command, or in a line
 * #SBATCH after the first command of the script, or Slurm's own --container with something that is not an
 * OCI bundle. Return CE_NOTE_REFUSAL if that is the name or the file of an environment, CE_NOTE_WARNING for
 * the others, else CE_NOTE_NONE. */
enum ce_note ce_check_misplaced(const struct ce_line *line, char note[CE_NOTE_SIZE]);

/* Check the command line of this process in this way. Return -1 with the error for a refusal, else 0, after a
 * warning that is printed only once. */
int ce_submit_check_line(struct ce_error *err);

/* Remove from this process's environment what describes to its tasks the container in which srun was called,
 * because this step or job does not run there. If `is_step` is set and there was such a container, print that
 * the step runs on the host. */
void ce_submit_leave_container(int is_step);
