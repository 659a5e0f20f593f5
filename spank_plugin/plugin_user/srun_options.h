/* Options for which SPANK has no item, found on the command line of srun, salloc or sbatch. As the user. */
#pragma once

#include <stddef.h>

/* The words of a command line, each followed by a NUL; `text` is on the heap, NULL if it cannot be read. */
struct ce_line {
	const char *text;
	size_t size;
};

void ce_free_line(struct ce_line *line);
#define CE_AUTO_LINE __attribute__((cleanup(ce_free_line))) struct ce_line

/* Return this process's command line. */
struct ce_line ce_srun_line(void);

/* Record in variables for the nodes (carry.h) whether --mpi, --chdir or --task-prolog was given, on this
 * process's command line or, except --chdir, in Slurm's variables. For --mpi and --task-prolog, an argument
 * of the command that looks the same is mistaken for the option. That costs no more than a warning about MPI
 * for a user who did not choose it, or one additional execve. SLURM_NETWORK gets the value of --network. */
void ce_srun_note_options(void);

/* Return whether srun copies the command's file to the nodes, by --bcast or SLURM_BCAST. An argument of the
 * command that looks the same is mistaken for --bcast. */
int ce_srun_broadcasts(void);

/* Return whether argv[1] is the text of a file of programs (--multi-prog, multi_prog.h); no other
 * word is mistaken for one. */
int ce_srun_is_multi_prog(int argc, char *const *argv);

/* Return whether the command line has this option before the command: "--name" or "-n". In doubt, an option
 * without "=" is taken to have the next word as its value. */
int ce_srun_has_option(const char *option);

/* Return whether this srun starts the shell of salloc on a node (--interactive) and its own options ask for
 * no container. */
int ce_srun_is_for_shell(void);

/* Return whether the command may be one that local_user_init cannot mark: that of one of several components,
 * or with --bcast or --async. An argument of the command may be mistaken for such an option. */
int ce_srun_may_hide_command(void);

/* Return whether --bcast or --async is certainly given. Whether there are several components is not
 * considered. */
int ce_srun_hides_command(void);

/* Return whether a word looks like an option that asks for a container; so may an argument of the command. */
int ce_srun_may_ask(void);

/* Return whether --task-prolog is given, for any component. */
int ce_srun_has_prolog(void);

/* Return the value of a long option of srun; NULL if it is absent. */
const char *ce_srun_value(const struct ce_line *line, const char *option);

/* Return the first word of the command, with the "--" before it if any; NULL if there is none. */
const char *ce_srun_command(const struct ce_line *line);
