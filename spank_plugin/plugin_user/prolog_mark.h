/*
 * A mark for steps whose commands cannot be marked (plugin/argv_mark.h): srun calls the plugin for only one
 * component of a heterogeneous step, with --async for none, and with --bcast it replaces the command
 * afterwards. There srun makes ce-prolog (programs/prolog.c) the task prolog of each component of the step:
 * Slurm runs it before each task, and it refuses tasks on a node that has not loaded the plugin.
 */
#ifndef CE_PROLOG_MARK_H
#define CE_PROLOG_MARK_H

#include "common/error.h"

/* Make `prolog`, the path of ce-prolog, the task prolog, if the command line may need it and asks for a
 * container; ce-prolog then runs the user's own. In srun, before Slurm reads the variables. */
void ce_prolog_mark(const char *prolog);

/* Return -1 with the error if the step needs the mark and does not have it, else 0. In srun, after the
 * options of each component. */
int ce_prolog_check(const char *prolog, struct ce_error *err);

#endif
