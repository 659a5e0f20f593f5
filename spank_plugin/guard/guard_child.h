/* Starts programs for the guard. */
#pragma once

#include "guard.h"

/* Start a program with stdin from /dev/null and its output in the log. `keep` is a descriptor that the
 * program inherits (-1: none). Return its pid, or -1 after guard_fail. */
pid_t guard_spawn(struct guard *guard, const char *const argv[], int keep);

/* Start the server of an image, which is mounted through `device` already. `mode` is "again" if another
 * server has answered requests through this connection before, "tell" if it is to write to `reads` what the
 * kernel reads, else NULL. Return 0, or -1 after guard_fail. */
int guard_start_server(struct guard *guard, const char *server, const char *image, int device,
		       const char *mode, int reads);

/* Run a program, or its copy at the path `copy` if that is not NULL and can be executed, with its standard
 * output in the descriptor `output`, and wait for it. Messages of failures call it `what`. Return 0 if it
 * ended with exit code 0, else -1 after guard_fail. */
int guard_run(struct guard *guard, const char *what, char *const argv[], const char *copy, int output);
