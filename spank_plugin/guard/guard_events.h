/* Watching the guard's children, and the processes for which the session exists. */
#pragma once

#include "guard.h"

/* Wait for a child while watching the session; end this process when the session has ended. Return
 * 0, or -1 after guard_fail. */
int guard_wait(struct guard *guard, pid_t pid, int *status);

/* Wait at most `milliseconds` for any event; -1 for no limit. Return -1 after guard_fail when a part of the
 * session has died. End this process, and with it the session, when it is no longer needed. */
int guard_events(struct guard *guard, int milliseconds);
