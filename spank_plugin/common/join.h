/*
 * Entering a running container: namespaces, environment, working directory, command.
 * Used by the plugin in every task and by ce-exec (`ce run`). All of it runs as the user, in a
 * process with one thread; nothing here needs or keeps a privilege.
 */
#ifndef CE_JOIN_H
#define CE_JOIN_H

#include <stddef.h>

#include "error.h"

struct ce_container {
	int user_ns;	/* descriptors, owned; -1 when absent */
	int mount_ns;
	int environment; /* records, see below */
	int guard;	/* pidfd of the guard, readable when all of the session is gone */
	int launcher;	/* pidfd of the launcher, which has work left after its answer */
	int attended;	/* readable once what is done after the guard's end is done */
	int trace;	/* the user's file for what is known of this launch, to append to; may be -1 */
	int marks;	/* the directory of the step's traces, for say.h; may be -1 */
	char *workdir;	/* heap, owned */
	char *notices;	/* heap, owned; lines for the user, may be empty */
	char *said;	/* heap, owned; what the entrypoint printed, may be empty */
	int may_gain;	/* whether the site lets execve give who has joined new privileges (no_new_privs=off) */
};

#define CE_CONTAINER_INIT { -1, -1, -1, -1, -1, -1, -1, -1, NULL, NULL, NULL, 0 }

void ce_container_close(struct ce_container *container);

/* Joins the user namespace, then the mount namespace, and changes to the working directory. From then on no
 * execve gives this process privileges (PR_SET_NO_NEW_PRIVS), unless the site lets it. In the container setuid
 * programs give nothing anyway; this also holds against a hole in what the kernel does at such an execve.
 * After a failure the process may be in between: it must not go on to run anything. */
int ce_join(const struct ce_container *container, struct ce_error *err);

/* The environment of a process: `set` with value NULL unsets; it returns 0 or a negative number. `get`
 * returns the value a variable has now, NULL for none. */
struct ce_variables {
	int (*set)(void *context, const char *name, const char *value);
	const char *(*get)(void *context, const char *name);
	void *context;
};

/* Changes an environment by records, each ended by NUL, in their order: `NAME=value` sets, `NAME` alone
 * unsets, `=NAME=OTHER` gives NAME the value that OTHER has in this task, and changes nothing where it
 * has none. What cannot be set ends the walk with an error that names the variable. */
int ce_apply_environment(int records_fd, const struct ce_variables *variables, struct ce_error *err);

/* Finds `command` as execvp would, with the PATH given (NULL: the usual default). On success *found
 * is a heap string. Not found is exit code 127, found but not executable 126. */
int ce_find_command(const char *path, const char *command, char **found, struct ce_error *err);

#endif
