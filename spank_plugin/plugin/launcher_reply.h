/*
 * The launcher's answer: one packet on a socket that all tasks of the node share. The launcher is the
 * user's process, so the answer is the user's word: text and descriptors may be anything.
 */
#ifndef CE_LAUNCHER_REPLY_H
#define CE_LAUNCHER_REPLY_H

#include "common/join.h"

/* Looks at the answer without taking it: every caller gets descriptors of its own. Does not wait.
 * As the user only: to close a descriptor of somebody else's, or to look at what it is, can block for
 * as long as he likes (a FUSE file). */
int ce_reply_look(int reply, struct ce_container *container, struct ce_error *err);

/* Whether the answer says that the container is ready. Receives no descriptor: for root. */
int ce_reply_is_ready(int reply);

#endif
