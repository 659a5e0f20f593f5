/*
 * What the plugin leaves to ce-join (programs/exec.c), in the environment of the task. No other program
 * knows these names.
 */
#ifndef CE_CE_JOIN_H
#define CE_CE_JOIN_H

/* What ce-join finds in its environment: descriptors of the user namespace, the mount namespace and the
 * environment, whether privileges may be gained, then the directory; and the command in whose place it stands,
 * none where it stands before it. */
#define CE_JOIN_CONTAINER "CE_JOIN_CONTAINER"
#define CE_JOIN_COMMAND "CE_JOIN_COMMAND"
/* Where there is a directory for news (say.h): its descriptor, and what tells this srun from another. */
#define CE_JOIN_NEWS "CE_JOIN_NEWS"

/* On a node that has not prepared the step: in the words of the mark (plugin/argv_mark.h), and of ce-join. */
#define CE_NOT_LOADED "this node's Slurm does not load the plugin of --environment; nothing was started"

#endif
