/* Runs the planner, once for each submission. In srun, salloc and sbatch, as the user. */
#ifndef CE_PLANNER_H
#define CE_PLANNER_H

#include "config.h"

/* What a plan says where the site wants batch scripts to run in the container, too. In a string of a
 * plan the quotes would have backslashes. */
#define CE_PLAN_INSIDE "\"batch_script\":\"inside\""
/* With what a plan names the store that was made for this step alone (EDF_IMAGESTORE=void). */
#define CE_PLAN_PASSING "\"passing\":\""

/* Runs `ce plan` for this environment. Its warnings and progress go to the user's terminal. On
 * success *plan is a heap string with its word, for ce_carry_put. On failure err has no
 * message when the planner has printed the reason already. */
int ce_planner_run(const struct ce_config *config, const char *caller, const char *environment,
		   char **plan, struct ce_error *err);

/* The directory of the store that was made for this step alone, on the heap; NULL for none. Also NULL for
 * a path that JSON writes in another way: then it is ce-keep that removes it. */
char *ce_plan_void_store(const char *plan);

/* Removes such a directory, with all that is in it, before srun ends: in a batch script Slurm kills what
 * is still there when the script has ended, ce-keep too. */
void ce_remove_void_store(const char *directory);

#endif
