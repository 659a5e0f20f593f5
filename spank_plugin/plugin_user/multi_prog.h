/*
 * The programs of --multi-prog. srun sends the text of their file as argv[1] of the step, and slurmstepd
 * makes the tasks' commands from it before it calls any plugin. So srun puts ce-join (enter.c) before each
 * program: with it, a task joins after its prologs, and on a node that does not load the plugin it reports
 * that and ends.
 */
#pragma once

#include <stddef.h>

#include "common/error.h"

/* Return whether argv[1] is the text of a file of programs. It is if srun's command line, or this component's
 * part of it, ends with the words of argv without argv[1]: srun has then inserted the text. `line` has the
 * words of the command line in `size` bytes, with a NUL after each. SPANK has no item for this. In srun. */
int ce_multi_prog_given(const char *line, size_t size, int argc, char *const *argv);

/* Put `program`, a path, before each program of *text, unless it is there already. Return 0, or -1 without
 * memory. The new *text is never freed: srun holds it until it ends. In srun. */
int ce_multi_prog_prefix(char **text, const char *program, struct ce_error *err);

/* Return whether srun has put ce-join before the programs. On a node. */
int ce_multi_prog_prefixed(int argc, char *const *argv);
