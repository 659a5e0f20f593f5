/* Killing all processes of a container, found by its namespaces. */
#ifndef CE_SWEEP_H
#define CE_SWEEP_H

/* Kill all processes in the mount namespace that `mount_ns` refers to; do nothing if that is the caller's own
 * namespace. Repeat until none is found, at most ten times, because a process may be forking. As root, this
 * reaches the processes of all users. Return how many processes were killed. */
int ce_sweep(int mount_ns);

/* The same for all processes in user namespaces that were made in the one in which `user_ns` was made: those of all
 * containers of a session. Do nothing if that is the caller's own. */
int ce_sweep_all(int user_ns);

#endif
