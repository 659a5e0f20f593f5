/* Checks whether a program is linked with an MPI library: each of its ranks then asks the program that
 * started it for the others. */
#ifndef CE_USES_MPI_H
#define CE_USES_MPI_H

/* Return 1 if the ELF file itself needs a library called libmpi…, 0 if not or if that cannot be
 * determined. */
int ce_uses_mpi(const char *path);

enum { CE_MPI_NAME = 64 };

/* Return 1, and the library's name in `name`, if the ELF file itself needs such a library and has no search
 * path of its own (RPATH, RUNPATH); else return 0. */
int ce_needs_mpi(const char *path, char name[CE_MPI_NAME]);

#endif
