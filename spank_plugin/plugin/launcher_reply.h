/*
 * The launcher's answer: one packet on a socket that all tasks of the node share. The launcher is the user's
 * process, so the answer is untrusted: text and descriptors may be anything.
 */
#ifndef CE_LAUNCHER_REPLY_H
#define CE_LAUNCHER_REPLY_H

#include "common/join.h"

/* Peek at the answer without taking it: every caller gets its own descriptors. Does not wait. Call it as the
 * user only: closing or inspecting a descriptor that the user supplied can block indefinitely (a FUSE
 * file). */
int ce_reply_look(int reply, struct ce_container *container, struct ce_error *err);

/* Return whether the answer reports that the container is ready. Receives no descriptor, so root may call
 * it. */
int ce_reply_is_ready(int reply);

#endif
