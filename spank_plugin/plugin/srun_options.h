/* Options of srun's own that SPANK has no item for, looked for on its command line. In srun, as the user. */
#ifndef CE_SRUN_OPTIONS_H
#define CE_SRUN_OPTIONS_H

/* Notes --mpi and --task-prolog, from this process's own command line. A command whose arguments look the same is
 * mistaken for them; all that costs is a warning about MPI to somebody who did not choose it, or one execve more. */
void ce_srun_note_options(void);

/* Whether srun copies the command's file to the nodes (--bcast), by the same look. */
int ce_srun_broadcasts(void);

/* Whether argv[1] is the text of a file of programs (--multi-prog, multi_prog.h); no other word is taken for one. */
int ce_srun_is_multi_prog(int argc, char *const *argv);

#endif
