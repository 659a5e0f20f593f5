/* Tell whether a program is linked with an MPI library: each of its ranks then asks its starter for the others. */
#ifndef CE_USES_MPI_H
#define CE_USES_MPI_H

/* Return 1 if the ELF file itself needs a library called libmpi…, 0 if not or if that cannot be determined. */
int ce_uses_mpi(const char *path);

enum { CE_MPI_NAME = 64 };

/* Do the same for a program without a search path of its own (RPATH, RUNPATH), and put the library's name into
 * `name`. */
int ce_needs_mpi(const char *path, char name[CE_MPI_NAME]);

#endif
