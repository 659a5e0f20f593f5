/* Finds the directory in which the user of this process has the memos of starts on this node. */
#ifndef CE_OWN_H
#define CE_OWN_H

#include <sys/types.h>

/* Return the home of the first user with this uid in the text of /etc/passwd, on the heap; NULL if there is none. */
char *ce_own_home(const char *passwd, uid_t uid);

/* Open the directory of a home's memos for the node with this host name. Return -1 unless each directory that the engine
 * has made for them is this user's alone, and no link. */
int ce_own_starts(const char *home, const char *host, uid_t uid);

/* Open a directory of this user, and no link, for which nobody else has any of the rights `others`. Return -1 for another. */
int ce_open_own(int at, const char *path, uid_t uid, mode_t others);

#endif
