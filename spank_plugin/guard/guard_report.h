/* Reports from the guard to the launcher, over guard->control. */
#ifndef CE_GUARD_REPORT_H
#define CE_GUARD_REPORT_H

#include "guard.h"

/* Record the beginning of an operation, by CLOCK_MONOTONIC; consecutive operations of one kind count as
 * one. */
void guard_stamp(struct guard *guard, const char *name);

/* Send the ready report: the stamps, descriptors of the namespaces and the environment, and a pidfd of this
 * process. Return 0, or -1 after guard_fail. */
int guard_report_ready(struct guard *guard, int process_dir);

/* Send the same for a container of these descriptors: its user and mount namespaces, its environment, its
 * mountinfo, and other namespaces of its own. */
int guard_report_container(struct guard *guard, const int container[], size_t count);

/* Send the message of guard_fail, and the end of our children's output. */
void guard_report_failure(struct guard *guard);

#endif
