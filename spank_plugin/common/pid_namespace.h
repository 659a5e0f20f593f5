/* The PID namespace of a container, for a process that must stay where Slurm started it. */
#pragma once

#include "error.h"

/* Return whether the descriptor is that of a PID namespace. */
int ce_is_pid_namespace(int fd);

/* Go on in a child, which is in the PID namespace that this process has joined for its children. The child
 * returns 0; this process returns only if it cannot fork, with -1 and the error. Otherwise it keeps its pid,
 * which Slurm watches and signals: it closes all descriptors, passes each signal on to the child, which has a
 * process group of its own and the terminal, and ends as the child does. When it is killed, so is the
 * child. */
int ce_enter_pids(struct ce_error *err);
