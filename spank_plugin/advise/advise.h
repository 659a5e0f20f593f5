/* Internal to ce-advise: what its parts say of a command. */
#pragma once

#include <stddef.h>

#include "common/error.h"
#include "common/join.h"
#include "common/uses_mpi.h"

/* ---- find_command.c ----------------------------------------------------------------------- */

/* Says why a command is not found, or cannot be executed, and what helps. */

/* Find `command` as execvp would, in the given PATH (NULL: the usual default), and check that the kernel can
 * execute it (exec_check.h). Return 0 and the path in *found, on the heap, which the caller frees; or -1 with
 * the error, whose exit code is 127 if the command is not found, 126 if it cannot be executed, 125 without
 * memory. */
int ce_find_command(const char *path, const char *command, char **found, struct ce_error *err);

/* ---- hints.c ------------------------------------------------------------------------------ */

/* Hints for what newcomers try first: commands that images do not have, and scripts of the host that are
 * not in the container. */

enum { CE_SCRIPT_LINE = 1024 };

/* Return the lines to print below "command not found" (help.h), valid until the next call. Commands that are
 * never or rarely in an image have lines of their own, as have files in the current directory. Call it in the
 * container. */
const char *ce_not_found_help(const char *command);

/* Return these lines with the job and the command line in the place of words that stand for them, valid until
 * the next call; `help` itself if it has none, or if `job` is no number (NULL: outside a job). */
const char *ce_help_in_job(const char *help, const char *job, char *const *argv);

/* The lines to print below the error for a file that nobody has the permission to execute. */
extern const char ce_no_permission_help[];

/* The lines to print below the error for a script with the line ends of Windows. */
extern const char ce_returns_help[];

/* The lines to print below the error for a script that its interpreter may not open. */
extern const char ce_out_of_reach_help[];

/* The lines to print below the error for a script whose interpreter does not exist. */
extern const char ce_interpreter_help[];

/* Return 1 and a warning in `line` if the command line passes to an interpreter a script that is a file of
 * the directory on the host from which the command was submitted, and does not exist in the container, from
 * the current directory there; else return 0. `directory` is a descriptor, `named` its path. */
int ce_script_is_elsewhere(int argc, char **argv, int directory, const char *named,
			   char line[CE_SCRIPT_LINE]);

/* ---- library_check.c ---------------------------------------------------------------------- */

/* Checks whether a program in the container gets the right libraries: none from directories of the host
 * that a variable of the job names, and the MPI library that it was linked with; and whether what
 * variables of the job name is there. Called in the container, after the join; only reads files. */

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

/* ---- shared_memory.c ---------------------------------------------------------------------- */

/* Return 1, and a line in `line`, if the container's /dev/shm is too small for a program that may share
 * memory, or full; else return 0. The line names the largest file or directory there. */
int ce_find_full_shared_memory(const struct ce_variables *variables, char line[CE_LIBRARY_LINE]);

/* ---- mpirun.c ----------------------------------------------------------------------------- */

/* The image's mpirun within a Slurm step: it starts its processes with Slurm's srun, which images do not
 * have. Hydra (MPICH, Intel MPI) then waits forever, Open MPI ends with "report this to the developers". */

/* Check the command line, whose program is the file `found`, in the container. Return -1 and an error if it
 * is an mpirun that cannot work there, else 0. If it may not work, set *doubt to a static warning; otherwise
 * leave *doubt unchanged. An mpirun for which the user has chosen another way to start processes is fine, and
 * so is Open MPI's on a single node. */
int ce_check_mpirun(const char *found, int argc, char **argv, const struct ce_variables *variables,
		    const char **doubt, struct ce_error *err);

/* Return whether the file is an mpirun that would use Slurm's srun: of MPICH, Intel MPI or Open MPI. */
int ce_is_mpirun(const char *file);

/* Return a static warning about the mpirun that a script calls in this job, which depends on whether PATH has
 * an srun. Return NULL if the mpirun may work: outside a job, in a job of one node, or where the user has
 * chosen another way to start processes. */
const char *ce_doubt_mpirun(const struct ce_variables *variables);

/* ---- mpi_warnings.c ----------------------------------------------------------------------- */

/* Tells users, before the command runs, that its MPI ranks will not find each other. */

/* One line each, "" for no warning. */
struct ce_mpi_warnings {
	char ranks[CE_WORD_SIZE + CE_LIBRARY_LINE];
	char mpirun[CE_WORD_SIZE + CE_LIBRARY_LINE];
	char lacks[CE_LIBRARY_LINE]; /* an MPI library that the program does not find */
};

/* For a task that a PMIx server refuses: return -1 and an error if the command, whose file is `found`, uses
 * MPI, else 0. Warn if another command runs as several tasks and the user chose MPI for them with --mpi. */
int ce_mpi_refused(const struct ce_variables *variables, const char *found, int chose_mpi,
		   struct ce_mpi_warnings *warnings, struct ce_error *err);

/* Collect the other warnings about the command, whose file is `found`. `environment` is the task's. */
void ce_mpi_warn(const struct ce_variables *variables, char **environment, const char *found, int argc,
		 char **argv, struct ce_mpi_warnings *warnings);

/* Finds programs that use MPI, and mpirun, behind a command that starts them: env, numactl, a shell, a
 * script. In ce-advise, in the container. */

/* Return whether the command, whose file is `found`, names a program that is linked with an MPI library, and
 * put its name into `name`: among its arguments if it starts other commands (env, nice, numactl), in the text
 * of a shell's -c, or in a script. `path` is the PATH of the task. Nothing is executed or expanded: a name
 * made of variables is not found. Where an mpirun is named as well, the answer is no. */
int ce_wraps_mpi(const char *path, const char *found, int argc, char **argv, char name[CE_WORD_SIZE]);

/* Return whether the command names, in the same ways, an mpirun that would look for Slurm's srun, and put its
 * name into `name`, unless the same text chooses another way to start processes. The command itself is not
 * looked at. */
int ce_wraps_mpirun(const char *path, const char *found, int argc, char **argv, char name[CE_WORD_SIZE]);
