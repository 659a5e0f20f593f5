/*
 * The programs of --multi-prog. srun sends the text of their file as argv[1] of the step, of which slurmstepd
 * makes the tasks' commands before it asks any plugin. So srun puts ce-join (exec.c) before each program: with it
 * the task joins, after its prologs, and on a node that does not load the plugin it says so and ends.
 */
#ifndef CE_MULTI_PROG_H
#define CE_MULTI_PROG_H

#include <stddef.h>

#include "common/error.h"

/* In srun: whether argv[1] is such a text. Then srun has put it among the words that end its command line, or this
 * component's part of it: `line`, of `size` bytes, with a NUL behind each word. SPANK has no item that says so. */
int ce_multi_prog_given(const char *line, size_t size, int argc, char *const *argv);

/* In srun: puts `program`, a path, before each program of *text, unless it is there already. The new *text is never
 * freed: srun holds it until it ends. */
int ce_multi_prog_prefix(char **text, const char *program, struct ce_error *err);

/* On a node: whether srun has done so. */
int ce_multi_prog_prefixed(int argc, char *const *argv);

#endif
