/*
 * Environment variables by which the plugin hands a task over to ce-join (programs/enter.c). No other program
 * reads them.
 */
#pragma once

/* CE_JOIN_CONTAINER: the descriptors of the user namespace, the mount namespace, the environment and the
 * seccomp profile (-1: none), 1 or 0 for whether the task may gain privileges, four descriptors of other
 * namespaces (-1: none), then the working directory. CE_JOIN_COMMAND: the command that ce-join replaces;
 * unset where ce-join is a prefix of the command. */
#define CE_JOIN_CONTAINER "CE_JOIN_CONTAINER"
#define CE_JOIN_COMMAND "CE_JOIN_COMMAND"
/* The descriptor of the directory that records which messages have been printed (say.h), and a string that
 * tells this srun from others. Unset where there is no such directory. */
#define CE_JOIN_PRINTED_MESSAGES "CE_JOIN_PRINTED_MESSAGES"

/* Printed on a node that has not prepared the step: by Slurm, as a part of the mark (plugin/argv_mark.h), by
 * ce-join and by ce-prolog. */
#define CE_NOT_LOADED "this node's Slurm does not load the plugin of --environment; nothing was started"
