/* Reports from the guard to the launcher, over guard->control. */
#pragma once

#include "guard.h"

/* Record when an operation begins, by CLOCK_MONOTONIC, and its name, a string literal. Consecutive operations
 * of one kind count as one. */
void guard_stamp(struct guard *guard, const char *name);

/* Report that the container is ready whose first process has this /proc directory (enum ce_reported_fd), with
 * the stamps and the end of our children's output. Return 0, or -1 after guard_fail. */
int guard_report_ready(struct guard *guard, int process_dir);

/* Send the same report for a container of these descriptors (enum ce_container_fd), which remain the
 * caller's. Keep copies for later steps (guard_keep_container). */
int guard_report_container(struct guard *guard, const int container[], size_t count);

/* Report the failure: the current operation, the errno and the message of guard_fail, the end of our
 * children's output, and the end of what OCI hooks have printed. */
void guard_report_failure(struct guard *guard);
