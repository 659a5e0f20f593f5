/*
 * Slurm carries the planner's output to the nodes in the environment of the step: srun puts it there as the
 * user, the plugin in slurmstepd takes it out. This code does not look into a plan.
 */
#pragma once

#include <stdint.h>

#include "common/error.h"
#include "common/planner_output.h"

/* The variables that carry the planner's output: CE_CARRY_COUNT holds the number of pieces, CE_CARRY_PART
 * (common/planner_output.h) followed by a decimal index holds a piece. The names begin with SLURM_ because
 * nothing else survives srun's --export=NONE. The text is split because one string of an environment cannot
 * be longer than 128 KiB. */
#define CE_CARRY_COUNT "SLURM_CE_PLAN_PARTS"
/* set if the user chose how MPI starts, with --mpi or SLURM_MPI_TYPE */
#define CE_CARRY_MPI "SLURM_CE_MPI_CHOSEN"
/* set if the user has a task prolog */
#define CE_CARRY_PROLOG "SLURM_CE_TASK_PROLOG"
/* set if srun has the option --chdir */
#define CE_CARRY_CHDIR "SLURM_CE_CHDIR"
/* the image's digest or path, as the planner states it, for the audit */
#define CE_CARRY_IMAGE "SLURM_CE_IMAGE"
/* Set by sbatch and salloc if the environment asks for no container, so that nothing is to be explained. The
 * batch script does not see it. */
#define CE_SCRIPT_ON_HOST "SLURM_CE_HOST"
/* Set to "1" in a batch script that runs in the container (hooks/batch_script). */
#define CE_INSIDE "SLURM_CE_INSIDE"
enum { CE_CARRY_PIECE = 64 * 1024, CE_CARRY_MAX_PARTS = 256 };

/* The meaning of the planner's output. Running on the host needs the keyword for it: empty, truncated or
 * unknown text means nothing, and then nothing runs. */
enum ce_word { CE_SAYS_NOTHING, CE_SAYS_HOST, CE_SAYS_PLAN };

/* Classify `text`, which may be NULL. If a plan follows the keyword, `*plan` points to it in `text`, else it
 * is NULL. */
enum ce_word ce_carry_word(const char *text, const char **plan);

/* Put the planner's output, from its keyword on, into this process's environment, with the times at which
 * planning began (`begun`, as ce_now_ns) and ended, which is now. Return 0, or -1 without memory. */
int ce_carry_put(const char *plan, int64_t begun, struct ce_error *err);

/* Remove what another srun carries to its own step from this process's environment. */
void ce_carry_forget(void);

/* Return the text that ce_carry_put put into a step's environment, on the heap; the caller frees it. NULL if
 * there is none or it is incomplete. Does not change `environment`. */
char *ce_carry_get(char **environment);

/* Return the value of a variable in an environment; NULL if it is unset. */
const char *ce_variable(char **environment, const char *name);
