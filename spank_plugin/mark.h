/*
 * A node that does not load the plugin knows nothing of --environment: Slurm drops the option there without a
 * word, and the command would run on the host. So srun sends, in place of the command, a text that cannot be
 * executed and says why, with the command at its end; the plugin on the node takes the text off again.
 */
#ifndef CE_MARK_H
#define CE_MARK_H

#include "error.h"

/* in the words of the mark, and of ce-join where nobody has prepared for it */
#define CE_NOT_LOADED "this node's Slurm does not load the plugin of --environment; nothing was started"

/* In srun: puts the mark before argv[0], unless it is there already. The new argv[0] is never freed: srun
 * holds it until it ends. */
int ce_mark(char **argv, struct ce_error *err);

/* On a node, before any task exists: takes the mark off argv[0], in place, and returns whether it was there. */
int ce_unmark(char **argv);

#endif
