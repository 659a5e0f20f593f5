/* Finds programs that use MPI, and mpirun, behind a command that starts them: env, numactl, a shell, a
 * script. In the task. */
#pragma once

#include "common/uses_mpi.h"

enum { CE_WRAPPED_SIZE = CE_WORD_SIZE };

/* Return whether the command, whose file is `found`, names a program that is linked with an MPI library, and
 * put its name into `name`: among its arguments if it starts other commands (env, nice, numactl), in the text
 * of a shell's -c, or in a script. `path` is the PATH of the task. Nothing is executed or expanded: a name
 * made of variables is not found. Where an mpirun is named as well, the answer is no. */
int ce_wraps_mpi(const char *path, const char *found, int argc, char **argv, char name[CE_WRAPPED_SIZE]);

/* Return whether the command names, in the same ways, an mpirun that would look for Slurm's srun, and put its
 * name into `name`, unless the same text chooses another way to start processes. The command itself is not
 * looked at. */
int ce_wraps_mpirun(const char *path, const char *found, int argc, char **argv, char name[CE_WRAPPED_SIZE]);
