/* Kills all processes of a container, found by its namespaces. */
#pragma once

/* Kill all processes in a mount namespace, or all in user namespaces that have the same parent as this user
 * namespace: the processes of all containers of a session. Do nothing if the mount namespace, or that parent,
 * is the caller's own. Repeat until none is found, at most ten times, because a process may be forking. As
 * root, this reaches the processes of all users. With `spares`, two kinds stay: the first process of a
 * container, with which the guard and the image would end, and those beside commands, which report their
 * ends. Return how many processes were killed. */
int ce_kill_container(int namespace, int spares);
