/*
 * The submit side: plan once, let Slurm carry the plan in the environment of the step.
 * Runs in srun, salloc and sbatch, as the user.
 */
#ifndef CE_SUBMIT_H
#define CE_SUBMIT_H

#include <stdint.h>

#include "config.h"

/* The variables that carry a plan: CE_CARRY_COUNT holds their number, CE_CARRY_PART followed by a
 * decimal index the pieces. The names begin with SLURM_ because nothing else survives `srun
 * --export=NONE`; pieces, because one string of an environment may not be longer than 128 KiB. */
#define CE_CARRY_COUNT "SLURM_CE_PLAN_PARTS"
#define CE_CARRY_PART "SLURM_CE_PLAN_"
/* set when the user chose how MPI starts, by --mpi or SLURM_MPI_TYPE */
#define CE_CARRY_MPI "SLURM_CE_MPI_CHOSEN"
/* set when the user has a task prolog */
#define CE_CARRY_PROLOG "SLURM_CE_TASK_PROLOG"
/* When planning began and ended, for the trace: two numbers of nanoseconds since 1970. */
#define CE_CARRY_TIMES "SLURM_CE_PLANNED"
/* What a plan says where the site wants batch scripts to run in the container, too. In a string of a
 * plan the quotes would have backslashes. */
#define CE_PLAN_INSIDE "\"batch_script\":\"inside\""
/* With what a plan names the store that was made for this step alone (EDF_IMAGESTORE=void). */
#define CE_PLAN_PASSING "\"passing\":\""
/* With what the planner's output begins, and what is carried: a plan follows, or there is to be no container and
 * nothing follows. container_engine/submit/quick.py has the same words. */
#define CE_WORD_PLAN "plan\n"
#define CE_WORD_HOST "host\n"
/* The environment in which the batch script runs that calls this srun. */
#define CE_INSIDE "SLURM_CE_INSIDE"
enum { CE_CARRY_PIECE = 64 * 1024, CE_CARRY_MAX_PARTS = 256 };

/* What a text of the planner's says. That the command runs on the host is a word of its own: whatever is empty, cut
 * short or unknown is nothing, and nothing runs. */
enum ce_word { CE_SAYS_NOTHING, CE_SAYS_HOST, CE_SAYS_PLAN };

/* `*plan` points behind the word in `text` where a plan follows, else it is NULL. `text` may be NULL. */
enum ce_word ce_carry_word(const char *text, const char **plan);

/* Runs `ce plan` for this environment. Its warnings and progress go to the user's terminal. On
 * success *plan is a heap string with its word, for ce_carry_put. On failure err has no
 * message when the planner has printed the reason already. */
int ce_submit_plan(const struct ce_config *config, const char *caller, const char *environment,
		   char **plan, struct ce_error *err);

/* The directory of the store that was made for this step alone, on the heap; NULL for none. Also NULL for
 * a path that JSON writes in another way: then it is ce-keep that removes it. */
char *ce_submit_passing(const char *plan);

/* Removes such a directory, with all that is in it, before srun ends: in a batch script Slurm kills what
 * is still there when the script has ended, ce-keep too. */
void ce_submit_remove(const char *directory);

/* Puts the plan into this process's environment, and that planning began at `begun` (step_shared.h). */
int ce_carry_put(const char *plan, int64_t begun, struct ce_error *err);

/* Notes --mpi and --task-prolog, from this process's own command line. A command whose arguments look the same is
 * mistaken for them; all that costs is a warning about MPI to somebody who did not choose it, or one execve more. */
void ce_carry_options(void);

/* Whether srun copies the command's file to the nodes (--bcast), by the same look. */
int ce_submit_broadcasts(void);

/* Whether argv[1] is the text of a file of programs (--multi-prog, multi_prog.h); no other word is taken for one. */
int ce_submit_has_programs(int argc, char *const *argv);

/* Takes out of srun's environment what another srun carried, which is that one's. */
void ce_carry_forget(void);

/* What ce_carry_put was given, out of a step's environment: a heap string, NULL when there is none or it is not
 * whole. Does not change `environment`. */
char *ce_carry_get(char **environment);

/* Whether srun carried something, whole or not. */
int ce_carry_is_there(char **environment);

/* The value of a variable in an environment; NULL when it has none. */
const char *ce_variable(char **environment, const char *name);

#endif
