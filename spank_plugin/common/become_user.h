/* Becoming the user: the only place where privileges are dropped. */
#pragma once

#include <sys/types.h>

/* Set the real, effective and saved ids and no supplementary groups, for good, and verify that by trying to
 * go back. A process that gives up root's ids this way cannot be traced by the user afterwards. Return NULL,
 * or a description of the failure with the reason in errno: the process must then end. Without root's ids,
 * only verify. Async-signal-safe: for a child after fork. */
const char *ce_become_user(uid_t uid, gid_t gid);
