/* The names of the user on this node, where others than /etc/passwd and /etc/group give them. */
#pragma once

#include <stddef.h>

/* Return whether ce-user, installed below `prefix`, prints this text (programs/user.c) for the calling
 * process's user; 0 if it fails. Waits for it as long as the node's sources of users take. */
int ce_user_has_names(const char *prefix, const char *text, size_t size);
