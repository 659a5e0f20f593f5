/* Checks whether the kernel will find a program and what it needs to be executed: its
 * interpreter or its loader, and a processor of its kind. */
#ifndef CE_EXEC_CHECK_H
#define CE_EXEC_CHECK_H

#include <stddef.h>

enum { CE_DAMAGED = 2, CE_FOREIGN = 3, CE_RETURNS = 4, CE_NO_INTERPRETER = 5 };
enum { CE_LOADER_SIZE = 256, CE_WHY_SIZE = 2 * CE_LOADER_SIZE + 60 };

/* Return 1 and the end of the chain in `end` if `path` is a symlink, or a symlink to symlinks, whose last
 * target does not exist. Example: the program of a virtual environment whose Python is the host's. */
int ce_leads_nowhere(const char *path, char end[CE_LOADER_SIZE]);

/* Return 1 and the reason in `why` if the program cannot be started: it cannot be read, it or its interpreter is
 * for another processor, or its loader or interpreter does not exist, in which case execve would only report that
 * the program itself does not exist. Return CE_DAMAGED if the unreadable file belongs to the image, CE_FOREIGN if
 * the one for another processor does, CE_RETURNS if it is a script with the line ends of Windows, and CE_NO_INTERPRETER
 * if its interpreter does not exist. Return 0 if the program has what it needs, or if that cannot be determined. */
int ce_cannot_start(const char *path, char why[CE_WHY_SIZE]);

#endif
