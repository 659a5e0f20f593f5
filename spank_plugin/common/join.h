/*
 * Entering a running container: namespaces, environment, working directory, command. Used by the plugin in
 * every task and by ce-enter (`ce run`). All of it runs as the user, in a single-threaded process; it neither
 * needs nor keeps a privilege.
 */
#pragma once

#include <stddef.h>

#include "error.h"
#include "protocol.h"

/* A container that a process can join, with what is known of its session. */
struct ce_container {
	int user_ns;	/* descriptors, owned; -1 when absent */
	int unshared[CE_MAX_UNSHARED]; /* its other namespaces, in any order; -1: it uses the node's */
	int mount_ns;
	int environment; /* records, see ce_apply_environment */
	int guard;	/* pidfd of the guard; readable when the whole session is gone */
	int launcher;	/* pidfd of the launcher, which has work left after it has answered */
	int attended;	/* readable once the work that follows the guard's end is done */
	int trace;	/* the user's trace file of this launch, to append to; may be -1 */
	int marks;	/* the directory of the step's traces, for say.h; may be -1 */
	int tasks;	/* where the task asks for a container of its own; -1 if all tasks share this one */
	int profile;	/* the site's seccomp profile, see seccomp.h; may be -1 */
	int outcome;	/* what becomes of it, see outcome.h; may be -1 */
	int json;	/* the file of `ce run --json`, or -1 */
	const char *node; /* Slurm's name of the node; NULL for a command without Slurm */
	const char *task; /* the number of the task in its step; NULL for such a command */
	const char *planned; /* what tells this srun from others, for say.h; NULL for such a command */
	char *workdir;	/* on the heap, owned */
	char *notices;	/* on the heap, owned; lines for the user, may be empty */
	char *entrypoint_output; /* on the heap, owned; may be empty */
	int is_of_job;	/* whether other steps of the job may be in the container */
	int is_saved;	/* whether the launcher saves the container when the tasks have ended */
	int may_gain;	/* whether execve may give new privileges after the join (no_new_privs=off) */
};

#define CE_CONTAINER_INIT \
	{ -1, { -1, -1, -1, -1 }, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, \
	  NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0 }

/* Close all descriptors and free the strings. May be called twice. */
void ce_container_close(struct ce_container *container);

/* Join the user namespace, then the others, the mount namespace last, and change to the working directory.
 * From then on, no execve gives this process privileges (PR_SET_NO_NEW_PRIVS), unless the site allows it. In
 * the container, setuid programs gain nothing anyway; this also protects against a hole in the kernel's
 * handling of such an execve. A user who is root in the container gets the filter of ce_fakeroot. Return 0,
 * or -1 with the error.
 *
 * Only a child can enter a PID namespace: where the container has one, or JSON is wanted, it is the child
 * that returns (ce_enter_pids). After a failure the process may have joined only in part: it must not execute
 * anything. */
int ce_join(const struct ce_container *container, struct ce_error *err);

/* Access to the environment of a process. `set` with value NULL unsets; it returns 0 or a negative number.
 * `get` returns the current value of a variable, NULL if it is unset. */
struct ce_variables {
	int (*set)(void *context, const char *name, const char *value);
	const char *(*get)(void *context, const char *name);
	void *context;
};

/* Apply NUL-terminated records to an environment, in their order: `NAME=value` sets, `NAME` alone unsets,
 * `=NAME=OTHER` gives NAME the value that OTHER has in this task, and changes nothing if OTHER is unset. Then
 * set the usual PATH if there is none. Return 0, or -1 with an error that names the first variable that
 * cannot be set; later records are then not applied. */
int ce_apply_environment(int records_fd, const struct ce_variables *variables, struct ce_error *err);

/* Variables by which the plugin hands a task over to ce-join (programs/enter.c); no other program reads them.
 * CE_JOIN_CONTAINER: the descriptors of the user namespace, the mount namespace, the environment and the
 * seccomp profile (-1: none), 1 or 0 for whether the task may gain privileges, four descriptors of other
 * namespaces (-1: none), that of the outcome (-1: none) and the guard's pidfd, then the working directory.
 * CE_JOIN_COMMAND: the command that ce-join replaces; unset where ce-join is a prefix of the command. */
#define CE_JOIN_CONTAINER "CE_JOIN_CONTAINER"
#define CE_JOIN_COMMAND "CE_JOIN_COMMAND"
/* The descriptor of the directory that records which messages have been printed (say.h), and a string that
 * tells this srun from others. Unset where there is no such directory. */
#define CE_JOIN_PRINTED_MESSAGES "CE_JOIN_PRINTED_MESSAGES"

/* Printed on a node that has not prepared the step: by Slurm, as a part of the mark (plugin/argv_mark.h), by
 * ce-join and by ce-prolog. */
#define CE_NOT_LOADED "this node's Slurm does not load the plugin of --environment; nothing was started"

/* The PID namespace of a container, for a process that must stay where Slurm started it. */

/* Return whether the descriptor is that of a PID namespace. */
int ce_is_pid_namespace(int fd);

/* Go on in a child, which is in the PID namespace that this process has joined for its children, if any, with
 * the limit of processes of that namespace's first process. The child returns 0, or -1 with the error; this
 * process returns only if it cannot fork, with -1 and the error. Otherwise it keeps its pid, which Slurm
 * watches and signals: it closes all descriptors but those with which it reports the outcome, passes each
 * signal on to the child, which has a process group of its own and the terminal, and ends as the child does.
 * When it is killed, so is the child. */
int ce_enter_pids(const struct ce_container *container, int has_pids, struct ce_error *err);
