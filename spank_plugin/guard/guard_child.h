/* Programs that the guard starts. */
#ifndef CE_GUARD_CHILD_H
#define CE_GUARD_CHILD_H

#include "guard.h"

/* Starts a program with stdin from /dev/null and its output in the log. `keep` is one descriptor the
 * program inherits (-1: none). Its pid, or -1 after guard_fail. */
pid_t guard_spawn(struct guard *guard, const char *const argv[], int keep);

/* 0 for the status of waitpid of a program that ended with exit code 0, else -1 after guard_fail. */
int guard_judge(struct guard *guard, const char *what, int status);

/* Runs a program, its standard output in the descriptor `output`, and waits for it; `what` is what a
 * failure calls it. 0 when it ended with exit code 0, else -1 after guard_fail. */
int guard_run(struct guard *guard, const char *what, char *const argv[], int output);

#endif
