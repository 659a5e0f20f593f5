/*
 * A node that does not load the plugin knows nothing of --environment: Slurm drops the option there without a
 * word, and the command would run on the host. So srun sends, in place of the command, a text that cannot be
 * executed and says why, with the command at its end; the plugin on the node takes the text off again.
 */
#ifndef CE_ARGV_MARK_H
#define CE_ARGV_MARK_H

#include "common/error.h"

/* In srun: puts the mark before argv[0], unless it is there already. The new argv[0] is never freed: srun
 * holds it until it ends. */
int ce_mark_argv(char **argv, struct ce_error *err);

/* On a node, before any task exists: takes the mark off argv[0], in place, and returns whether it was there. */
int ce_unmark_argv(char **argv);

/*
 * An srun that does not load the plugin (in a batch script, on a node that was set up anew) knows nothing of the
 * option that the job has. So sbatch and salloc put a variable into the job's environment that such an srun takes for
 * a number and cannot read: it ends, and prints the value between words of its own. An srun with the plugin takes
 * it out before Slurm reads it, and no task sees it. Of Slurm's programs srun alone asks for this variable, no job
 * of anybody's is likely to have it, and as it begins with SLURM_ it passes --export=NONE, as the option does.
 */
#define CE_JOB_MARK "SLURM_THREAD_SPEC"
/* what the user had there, for the srun that takes the mark off */
#define CE_JOB_MARKED "SLURM_CE_THREAD_SPEC"

/* In salloc and sbatch: puts the mark into this process's environment, which becomes the job's. */
int ce_mark_job(struct ce_error *err);

/* In srun, salloc and sbatch, before Slurm reads the variables: takes it out again. */
void ce_unmark_job(void);

#endif
