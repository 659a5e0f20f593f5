/* Options of srun for which SPANK has no item, found on its command line. In srun, as the user. */
#ifndef CE_SRUN_OPTIONS_H
#define CE_SRUN_OPTIONS_H

/* Record --mpi and --task-prolog, from this process's own command line. A command with arguments that look
 * the same is mistaken for them. That costs no more than a warning about MPI for a user who did not choose
 * it, or one additional execve. */
void ce_srun_note_options(void);

/* Return whether srun copies the command's file to the nodes (--bcast), found in the same way. */
int ce_srun_broadcasts(void);

/* Return whether argv[1] is the text of a file of programs (--multi-prog, multi_prog.h); no other
 * word is mistaken for one. */
int ce_srun_is_multi_prog(int argc, char *const *argv);

/* Return whether the command line has this long option before the command. In doubt, an option without "="
 * is taken to have the next word as its value. */
int ce_srun_has_option(const char *option);

#endif
