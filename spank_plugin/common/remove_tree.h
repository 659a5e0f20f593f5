/* Removes a directory whose contents a user has chosen. */
#pragma once

/* Remove `name` in the open directory `parent`, and all below it, as far as this process may. No symlink and
 * no mount is followed: what is mounted below it stays, with the directories above the mount. */
void ce_remove_tree(int parent, const char *name);
