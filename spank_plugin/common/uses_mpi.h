/* Checks whether a program is linked with an MPI library: each of its ranks then asks the program that
 * started it for the others. */
#pragma once

/* Commands behind which such a program may be, as lists of words (words.h): mpirun, shells, and programs
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

/* Looks in the texts of shells and scripts for words that are programs of a kind. Nothing is executed or
 * expanded: a name made of variables is not found. */

enum { CE_WORD_SIZE = 128 };

/* A search for words that are programs in the task's PATH for which `is` returns true. Texts for which
 * `skips`, if set, returns true are skipped. */
struct ce_search {
	const char *path;
	int (*is)(const char *file);
	int (*skips)(const char *text);
	char *name; /* of CE_WORD_SIZE; the word that was found */
};

/* Return whether the word names such a program, as a shell would find it, and note its name. */
int ce_names_it(const struct ce_search *search, const char *word);

/* Return whether a shell's text names one. This changes the text. */
int ce_in_text(const struct ce_search *search, char *text);

/* Return whether the text of a file names one: of a file that a shell reads, or else only of a script that
 * names its interpreter. */
int ce_in_script(const struct ce_search *search, const char *file, int has_shell);
