/* Options of srun for which SPANK has no item, found on its command line. In srun, as the user. */
#ifndef CE_SRUN_OPTIONS_H
#define CE_SRUN_OPTIONS_H

#include <stddef.h>

/* Return the words of this process's command line, each followed by a NUL, on the heap. NULL on failure. */
char *ce_srun_line(size_t *size);

/* Record --mpi, --chdir and --task-prolog, from this process's own command line. A command with arguments that look
 * the same is mistaken for them. That costs no more than a warning about MPI for a user who did not choose
 * it, or one additional execve. */
void ce_srun_note_options(void);

/* Return whether srun copies the command's file to the nodes (--bcast), found in the same way. */
int ce_srun_broadcasts(void);

/* Return whether argv[1] is the text of a file of programs (--multi-prog, multi_prog.h); no other
 * word is mistaken for one. */
int ce_srun_is_multi_prog(int argc, char *const *argv);

/* Return whether the command line has this option before the command: "--name" or "-n". In doubt, an option
 * without "=" is taken to have the next word as its value. */
int ce_srun_has_option(const char *option);

/* Return whether this srun starts the shell of salloc on a node (--interactive) and its own options ask for no
 * container. */
int ce_srun_is_for_shell(void);

/* Return whether the command may be one that local_user_init cannot mark: of one of several components, of --bcast or
 * --async. An argument of the command may be mistaken for such an option. */
int ce_srun_may_hide_command(void);

/* Return whether --bcast or --async is surely given, as far as components are not concerned. */
int ce_srun_hides_command(void);

/* Return whether a word looks like an option that asks for a container; an argument of the command may, too. */
int ce_srun_may_ask(void);

/* Return whether --task-prolog is given, for any component. */
int ce_srun_has_prolog(void);

/* Return the value of a long option on a line of ce_srun_line; NULL if it is absent. */
const char *ce_srun_value(const char *line, size_t size, const char *option);

/* Return the first word of the command, with the "--" before it if any; NULL if there is none. */
const char *ce_srun_command(const char *line, size_t size);

#endif
