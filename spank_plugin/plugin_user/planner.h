/* Runs the planner, once for each submission. In srun, salloc and sbatch, as the user. */
#pragma once

#include "plugin/config.h"

/* The planner's output. */
struct ce_planned {
	char *text; /* the keyword, and the plan after it, for ce_carry_put; on the heap */
	/* the image store of this step alone (EDF_IMAGESTORE=void), on the heap; or NULL */
	char *ephemeral_store;
	char *image; /* its digest or its path, for the audit, NULL for none; on the heap */
	char *job_container; /* the value of CE_CARRY_JOB_CONTAINER, NULL for none; on the heap */
	int script_inside; /* the site runs batch scripts in the container */
};

/* Run the planner with these words, which end with NULL (ce_options_words). Its warnings and progress go to
 * the user's terminal. Return 0, or -1; then *planned is empty, and err has no message if the planner has
 * already printed the reason. */
int ce_planner_run(const struct ce_config *config, const char *caller, const char *const *words,
		   struct ce_planned *planned, struct ce_error *err);

/* Parse the planner's output. Return 0, or -1, with *planned empty, if it has neither a plan nor the keyword
 * for no container, or has an unknown line before the keyword. */
int ce_planned_read(const char *output, struct ce_planned *planned);

/* Free all strings and make *planned an empty one. */
void ce_planned_clear(struct ce_planned *planned);

/* Remove an image store of one step, before srun ends: in a batch script, Slurm kills the remaining processes
 * when the script ends, and ce-reaper is one of them. */
void ce_remove_ephemeral_store(const char *directory);
