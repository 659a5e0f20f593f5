/* The end of a session on a node: telling of it, waiting for its guard, killing what does not end by
 * itself. */
#ifndef CE_SESSION_END_H
#define CE_SESSION_END_H

#include "launcher.h"

/* Lets the launcher finish, ends the session in good order, waits until the guard is gone, kills it if it does
 * not go, ends every process in the container's mount namespace, and waits for what is done after that (services,
 * OCI hooks). All of it in a child that has become the user: what the launcher has answered is the user's
 * word, and the kernel lets a user end nothing but his own processes, whatever descriptors he sent. The child is
 * waited for, nine seconds at most. In slurmstepd, as root, from any thread. */
struct ce_end {
	int child, gate;
};

/* Returns when the child has done so; it holds its copies of the session's sockets until ce_end_finish. */
void ce_end_begin(struct ce_end *end, const struct ce_launcher *launcher);
void ce_end_finish(struct ce_end *end);

/* Both at once, where this process goes on using the session. */
void ce_end_run(const struct ce_launcher *launcher);

/* Tells the user why the container died, if this step has not said so yet (`planned`: say.h); waits for
 * that a second at most. Also in a child that has become the user: where it is noted that something has
 * been said is his word, too. In slurmstepd, as root, from any thread. */
void ce_end_report(const struct ce_launcher *launcher, const char *planned, const char *cause);

#endif
