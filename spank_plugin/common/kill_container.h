/* Kills all processes of a container, found by its namespaces. */
#pragma once

/* Kill all processes in the mount namespace that `mount_ns` refers to; do nothing if that is the caller's own
 * namespace. Repeat until none is found, at most ten times, because a process may be forking. As root, this
 * reaches the processes of all users. Return how many processes were killed. */
int ce_kill_container(int mount_ns);

/* Kill all processes in user namespaces whose parent is that of `user_ns`: the processes of all containers of
 * a session. Do nothing if this parent is the caller's own user namespace. Repeat and return as
 * ce_kill_container does. */
int ce_kill_session(int user_ns);
