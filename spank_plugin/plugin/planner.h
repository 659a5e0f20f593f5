/* Runs the planner, once for each submission. In srun, salloc and sbatch, as the user. */
#ifndef CE_PLANNER_H
#define CE_PLANNER_H

#include "config.h"

/* The planner's output. */
struct ce_planned {
	char *text; /* its word, and the plan behind it, for ce_carry_put; on the heap */
	char *void_store; /* the image store of this step alone (EDF_IMAGESTORE=void), NULL for none; on the heap */
	int script_inside; /* the site runs batch scripts in the container, too */
};

/* Runs `ce plan` for this environment. Its warnings and progress go to the user's terminal. On failure
 * *planned is empty, and err has no message when the planner has printed the reason already. */
int ce_planner_run(const struct ce_config *config, const char *caller, const char *environment,
		   struct ce_planned *planned, struct ce_error *err);

/* Reads such an output; -1 for one that has neither a plan nor the word that there is no container, or a line before
 * that word that is not known: *planned is empty then. */
int ce_planned_read(const char *output, struct ce_planned *planned);

void ce_planned_clear(struct ce_planned *planned);

/* Removes such a directory, with all that is in it, before srun ends: in a batch script Slurm kills what
 * is still there when the script has ended, ce-keep too. */
void ce_remove_void_store(const char *directory);

#endif
