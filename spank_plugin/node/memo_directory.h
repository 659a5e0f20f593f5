/* Finds the directory in which the user of this process has the memos of starts on this node. */
#ifndef CE_MEMO_DIRECTORY_H
#define CE_MEMO_DIRECTORY_H

#include <sys/types.h>

/* The directory below which the memos of all users are. A job with a /tmp of its own sees it, too. It must
 * match container_engine/node/memo_directory.py. */
#define CE_MEMOS "/var/tmp"

/* Open the directory of the user's memos of starts below `temporary`, which is CE_MEMOS outside tests. Return
 * -1 unless each directory that the engine has made for them is this user's alone, and not a symlink. */
int ce_own_starts(const char *temporary, uid_t uid);

#endif
