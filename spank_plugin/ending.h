/* The end of a session on a node: waiting for its guard, killing what does not end by itself. */
#ifndef CE_ENDING_H
#define CE_ENDING_H

#include "launcher.h"

/* Waits until the guard is gone, kills it if it does not go, then ends every process in the
 * container's mount namespace. All of it in a child that has become the user: what the launcher has
 * answered is the user's word, and the kernel lets a user end nothing but his own processes, whatever
 * descriptors he sent. This process waits for the child, at most five seconds.
 * In slurmstepd, as root, from any thread. */
void ce_ending_run(const struct ce_launcher *launcher);

/* The same as the last use of the session: closes both of its sockets meanwhile. */
void ce_ending_run_last(struct ce_launcher *launcher);

#endif
