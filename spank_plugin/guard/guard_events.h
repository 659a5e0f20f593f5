/* The guard's watch over its children and over those that want the session. */
#ifndef CE_GUARD_EVENTS_H
#define CE_GUARD_EVENTS_H

#include "guard.h"

/* Waits for a child while the session is being watched; ends the process when the session ended. */
int guard_wait(struct guard *guard, pid_t pid, int *status);

/* Waits at most `milliseconds` for any event. Returns -1 after guard_fail when a part of the session
 * died. Ends the process, and with it the session, when nobody wants it any more. */
int guard_events(struct guard *guard, int milliseconds);

#endif
