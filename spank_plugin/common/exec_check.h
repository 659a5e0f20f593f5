/* Whether the kernel will find a program, and what it needs to be executed: its interpreter, its loader. */
#ifndef CE_EXEC_CHECK_H
#define CE_EXEC_CHECK_H

#include <stddef.h>

enum { CE_DAMAGED = 2 };
enum { CE_LOADER_SIZE = 256, CE_WHY_SIZE = 2 * CE_LOADER_SIZE + 60 };

/* 1 and the end of the way in `end` if `path` is a link, or a link to links, and the last of them leads to
 * what is not there: the program of a virtual environment whose Python is the host's, say. */
int ce_leads_nowhere(const char *path, char end[CE_LOADER_SIZE]);

/* 1 and the reason in `why` if the program cannot be started: it cannot be read, or nothing is there by the
 * name of its loader or interpreter, of which execve would only say that the program itself is not there.
 * CE_DAMAGED if what cannot be read is of the image. 0 for a program that has what it needs, and for one of
 * which nothing can be told. */
int ce_cannot_start(const char *path, char why[CE_WHY_SIZE]);

#endif
