/* Checks whether the kernel can execute a program: whether its interpreter or loader exists, and whether it
 * is for the node's processor. */
#pragma once

#include "program_head.h"

enum { CE_UNFIT = 1, CE_DAMAGED, CE_FOREIGN, CE_RETURNS, CE_NO_INTERPRETER, CE_OUT_OF_REACH };
enum { CE_WHY_SIZE = 2 * CE_LOADER_SIZE + 60 };

/* Return 1 and the end of the chain in `end` if `path` is a symlink, or a symlink to symlinks, whose last
 * target does not exist; otherwise return 0. Example: the program of a virtual environment whose Python is
 * the host's. */
int ce_leads_nowhere(const char *path, char end[CE_LOADER_SIZE]);

/* Return 0 if the program has what it needs, or if that cannot be determined. Otherwise write the reason to
 * `why` and return CE_DAMAGED if a file of the image cannot be read (EIO), CE_FOREIGN if a file of the image
 * is for another processor, CE_RETURNS for a script with the line ends of Windows, CE_NO_INTERPRETER for a
 * script whose interpreter does not exist, CE_OUT_OF_REACH for one that its interpreter may not open, and
 * CE_UNFIT for a loader that does not exist or a file outside
 * the image that cannot be read or is for another processor. Without this check, execve would report a
 * missing loader or interpreter as if the program itself did not exist. */
int ce_cannot_start(const char *path, char why[CE_WHY_SIZE]);

/* Write to `why` the reason for which the program could not be executed, where execve has failed with the
 * errno `number`: what the file itself lacks, if that is found, else the errno's own words. */
void ce_not_started(const char *path, int number, char why[CE_WHY_SIZE]);
