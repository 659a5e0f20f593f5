/* Says why a command is not found, or cannot be executed, and what helps. */
#pragma once

#include "common/error.h"

/* Find `command` as execvp would, in the given PATH (NULL: the usual default), and check that the kernel can
 * execute it (exec_check.h). Return 0 and the path in *found, on the heap, which the caller frees; or -1 with
 * the error, whose exit code is 127 if the command is not found, 126 if it cannot be executed, 125 without
 * memory. */
int ce_find_command(const char *path, const char *command, char **found, struct ce_error *err);
