/*
 * Joining after Slurm's task prologs. slurmstepd runs the site's TaskProlog and a user's --task-prolog
 * between task_init and the command, in the process that will be the command: had it joined by then,
 * they would run in the container, where a host's script is not. Where there is one, the command is
 * replaced by ce-join, which slurmstepd executes after them and which joins and becomes the command.
 */
#ifndef CE_LATER_H
#define CE_LATER_H

#include "join.h"

/* What ce-join finds in its environment: descriptors of the user namespace, the mount namespace and the
 * environment, then the directory; and the command in whose place it stands. */
#define CE_JOIN_CONTAINER "CE_JOIN_CONTAINER"
#define CE_JOIN_COMMAND "CE_JOIN_COMMAND"
/* Where there is a directory for news (news.h): its descriptor, and what tells this srun from another. */
#define CE_JOIN_NEWS "CE_JOIN_NEWS"

/* Whether slurmstepd will run a prolog in each task: the site's, which this process's configuration of
 * Slurm names, or the user's, which srun has noticed. */
int ce_later_is_wanted(int user_has_prolog);

/* In a task that has joined all the same: the site's prolog if it cannot be executed there, else NULL. */
const char *ce_later_missing(void);

/* In the task: puts `program` in the place of the command, argv[0], and keeps the descriptors of
 * `container` open for it; `container` holds them no more, but for the directory for news. */
int ce_later_arrange(struct ce_container *container, char **argv, const char *program,
		     const char *planned, const struct ce_variables *variables,
		     struct ce_error *err);

#endif
