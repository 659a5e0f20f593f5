/*
 * Checks whether a program in the container gets the right libraries: none from directories of the host that
 * a variable of the job names, and the MPI library that it was linked with; and whether what variables of the
 * job name is there. Called in the container, after
 * the join; only reads files.
 */
#pragma once

#include "common/join.h"

enum { CE_LIBRARY_LINE = 1024 };

/* Return 1, and a line about the first finding in `line`, if LD_LIBRARY_PATH or PYTHONPATH comes from the
 * job, so is set neither by the image nor by the environment, and names a mounted directory with a library or
 * package that the image has as well; else return 0. Only what must match the image is looked for: MPI, the
 * network, CUDA, the C and C++ libraries, packages with compiled parts. `records_fd` has the changes to the
 * job's environment (ce_apply_environment). */
int ce_find_host_library(int records_fd, const struct ce_variables *variables, char line[CE_LIBRARY_LINE]);

/* Return 1, and one line about all of them in `line`, if variables that come from the job, such as PYTHONHOME
 * or JAVA_HOME, name places that the container lacks; else return 0. SHELL counts at a terminal only. */
int ce_find_missing_places(int records_fd, const struct ce_variables *variables, char line[CE_LIBRARY_LINE]);

/* Return 1, and a line about it in `line`, if the program needs an MPI library that its loader certainly
 * cannot find; else return 0, also for a program with a search path of its own. */
int ce_lacks_mpi(const char *program, const struct ce_variables *variables, char line[CE_LIBRARY_LINE]);
