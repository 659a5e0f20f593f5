/*
 * What the loader of the container takes from elsewhere than the image, or does not find: libraries of the host
 * that a variable of the job names, and the MPI library of a program that was made for another image. Called in
 * the container, after the join; only reads files.
 */
#ifndef CE_LIBRARY_CHECK_H
#define CE_LIBRARY_CHECK_H

#include "join.h"

enum { CE_LEAK_LINE = 1024 };

/* Return whether LD_LIBRARY_PATH or PYTHONPATH of the job, which neither the image nor the environment sets,
 * names a mounted directory with a library or package that the image has as well, and put a line about the first
 * into `line`. Only such that must fit the image are looked for: MPI, the network, CUDA, the C and C++ libraries,
 * packages with compiled parts. `records_fd` has the changes to the job's environment (ce_apply_environment). */
int ce_find_leak(int records_fd, const struct ce_variables *variables, char line[CE_LEAK_LINE]);

/* Return whether the program needs an MPI library that its loader cannot find, and put a line about it into
 * `line`. Only certain results: not for a program with a search path of its own. */
int ce_lacks_mpi(const char *program, const struct ce_variables *variables, char line[CE_LEAK_LINE]);

#endif
