/* Ending every process of a container, found by its mount namespace. */
#ifndef CE_SWEEP_H
#define CE_SWEEP_H

/* Kills all processes whose mount namespace is the one that `mount_ns` refers to, except the caller's
 * own. Repeats until none is found, at most ten times, because a process may be forking. As root it
 * reaches everybody's. Returns how many were killed. */
int ce_sweep(int mount_ns);

#endif
