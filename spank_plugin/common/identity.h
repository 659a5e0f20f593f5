/* Becoming the user: the one place where a privilege is dropped. */
#ifndef CE_IDENTITY_H
#define CE_IDENTITY_H

#include <stddef.h>
#include <sys/types.h>

/* Real, effective and saved ids and the supplementary groups become these, for good; that is verified
 * by trying to go back. A process that root's ids are taken from cannot be traced by the user afterwards. NULL, or what went wrong with the reason in errno: the process must then end.
 * Without root's ids only the verification is done. Async-signal-safe: for a child after fork. */
const char *ce_become_user(uid_t uid, gid_t gid, const gid_t *groups, size_t count);

#endif
