/* Checks whether a program is linked with an MPI library: each of its ranks then asks the program that
 * started it for the others. */
#pragma once

/* Commands behind which such a program may be, as lists of words (word_list.h): mpirun, shells, and programs
 * that execute a command among their arguments. */
#define CE_MPIRUNS                                                                                 \
	" mpirun mpiexec mpiexec.hydra mpirun.mpich mpiexec.mpich mpirun.openmpi mpiexec.openmpi " \
	"orterun prterun "
#define CE_SHELLS " sh bash dash ash ksh zsh "
#define CE_WRAPPERS                                                                                \
	" env nice nohup time timeout setsid stdbuf numactl taskset chrt ionice exec strace "      \
	"ltrace perf valgrind gdb catchsegv xvfb-run "

/* Return 1 if the ELF file itself needs a library called libmpi…, 0 if not or if that cannot be
 * determined. */
int ce_uses_mpi(const char *path);

enum { CE_MPI_NAME = 64 };

/* Return 1, and the library's name in `name`, if the ELF file itself needs such a library and has no search
 * path of its own (RPATH, RUNPATH); else return 0. */
int ce_needs_mpi(const char *path, char name[CE_MPI_NAME]);
