/*
 * Joining after Slurm's task prologs. slurmstepd runs the site's TaskProlog and a user's --task-prolog
 * between task_init and the command, in the process that will be the command: had it joined by then,
 * they would run in the container, where a host's script is not. Where there is one, the command is
 * replaced by ce-join, which slurmstepd executes after them and which joins and becomes the command. With
 * --multi-prog, whose commands a plugin cannot reach, it always is.
 */
#ifndef CE_JOIN_AFTER_PROLOG_H
#define CE_JOIN_AFTER_PROLOG_H

#include "common/join.h"

/* Whether slurmstepd will run a prolog in each task: the site's, which this process's configuration of
 * Slurm names, or the user's, which srun has noticed. */
int ce_after_prolog_wanted(int user_has_prolog);

/* In the task: keeps the descriptors of `container` open for ce-join, which will stand in the place of `command`, or
 * before it if that is NULL (multi_prog.h). `container` holds them no more, but for the directory for news. */
int ce_after_prolog_arrange(struct ce_container *container, const char *command, const char *planned,
			    const struct ce_variables *variables, struct ce_error *err);

#endif
