/* What the guard tells the launcher, over guard->control. */
#ifndef CE_GUARD_REPORT_H
#define CE_GUARD_REPORT_H

#include "guard.h"

/* Notes that an operation begins, by CLOCK_MONOTONIC; several of one kind in a row are one. */
void guard_stamp(struct guard *guard, const char *name);

/* Sends the ready report: when what began, descriptors of the namespaces, the environment, ourselves. */
int guard_report_ready(struct guard *guard, int process_dir);

/* Sends what guard_fail was told, and the end of what our children printed. */
void guard_report_failure(struct guard *guard);

#endif
