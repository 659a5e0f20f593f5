/* The end of a session on a node: telling of it, waiting for its guard, killing what does not end by
 * itself. */
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

/* Tells the user why the container died, if this step has not said so yet (`planned`: news.h); waits for
 * that a second at most. Also in a child that has become the user: where it is noted that something has
 * been said is his word, too. In slurmstepd, as root, from any thread. */
void ce_ending_tell(const struct ce_launcher *launcher, const char *planned, const char *cause);

#endif
