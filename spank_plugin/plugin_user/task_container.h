/* A task's way into its container: one of its own where each task has one; now, or after prologs. */
#pragma once

#include "common/join.h"
#include "plugin/launcher.h"

/* Ask the guard for a container that lives as long as this process, and put its namespaces in place of those
 * in `container`, which all tasks know; do nothing if all tasks of the node share one container. Return 0, or
 * -1 with the error. Runs as the user, in the task. */
int ce_task_container(const struct ce_launcher *launcher, int timeout_s, struct ce_container *container,
		      struct ce_error *err);

/*
 * Joining after Slurm's task prologs. slurmstepd runs the site's TaskProlog and the user's --task-prolog
 * between task_init and the command, in the process that becomes the command. If that process had already
 * joined, the prologs would run in the container, where the host's scripts do not exist. So, where there is a
 * prolog, the command is replaced by ce-join, which slurmstepd executes after the prologs and which joins and
 * becomes the command. With --multi-prog, whose commands a plugin cannot reach, ce-join is always used.
 */

/* Keep the descriptors of `container` open for ce-join, which replaces `command`, or precedes it if that is
 * NULL (multi_prog.h), and pass their numbers in the task's environment. Take them out of `container`, except
 * the directory that records printed messages. Return 0, or -1 with the error. In the task. */
int ce_after_prolog_arrange(struct ce_container *container, const char *command,
			    const struct ce_variables *variables, struct ce_error *err);
