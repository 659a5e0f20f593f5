/*
 * Joining after Slurm's task prologs. slurmstepd runs the site's TaskProlog and the user's --task-prolog
 * between task_init and the command, in the process that becomes the command. If that process had already
 * joined, the prologs would run in the container, where the host's scripts do not exist. So, where there is a
 * prolog, the command is replaced by ce-join, which slurmstepd executes after the prologs and which joins and
 * becomes the command. With --multi-prog, whose commands a plugin cannot reach, ce-join is always used.
 */
#pragma once

#include "common/join.h"

/* Keep the descriptors of `container` open for ce-join, which replaces `command`, or precedes it if that is
 * NULL (multi_prog.h), and pass their numbers in the task's environment. Take them out of `container`, except
 * the directory that records printed messages. Return 0, or -1 with the error. In the task. */
int ce_after_prolog_arrange(struct ce_container *container, const char *command, const char *planned,
			    const struct ce_variables *variables, struct ce_error *err);
