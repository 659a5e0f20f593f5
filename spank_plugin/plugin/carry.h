/*
 * Slurm carries what the planner has printed in the environment of the step: srun puts it there as the user, the
 * plugin in slurmstepd takes it out. Nothing here looks into a plan.
 */
#ifndef CE_CARRY_H
#define CE_CARRY_H

#include <stdint.h>

#include "common/error.h"

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
/* The environment in which the batch script runs that calls this srun. */
#define CE_INSIDE "SLURM_CE_INSIDE"
/* With what the planner's output begins, and what is carried: a plan follows, or there is to be no container and
 * nothing follows. container_engine/submit/quick.py has the same words. */
#define CE_WORD_PLAN "plan\n"
#define CE_WORD_HOST "host\n"
enum { CE_CARRY_PIECE = 64 * 1024, CE_CARRY_MAX_PARTS = 256 };

/* What a text of the planner's says. That the command runs on the host is a word of its own: whatever is empty, cut
 * short or unknown is nothing, and nothing runs. */
enum ce_word { CE_SAYS_NOTHING, CE_SAYS_HOST, CE_SAYS_PLAN };

/* `*plan` points behind the word in `text` where a plan follows, else it is NULL. `text` may be NULL. */
enum ce_word ce_carry_word(const char *text, const char **plan);

/* Puts the plan into this process's environment, and that planning began at `begun` (step_shared.h). */
int ce_carry_put(const char *plan, int64_t begun, struct ce_error *err);

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
