/*
 * Names that the planner, the plugin and the programs on the nodes share: what the planner prints, and the
 * environment variables of the step that carry this output to the nodes.
 */
#pragma once

/* Lines before the keyword: facts for the plugin, which does not parse plans. The first is a whole line; the
 * others continue with a value. container_engine/submit/prepare.py has the same names. */
#define CE_LINE_INSIDE "batch_script=inside"
#define CE_LINE_STORE "ephemeral_store="
#define CE_LINE_IMAGE "image="
#define CE_LINE_JOB_CONTAINER "kept="

/* Keywords of the planner's output: a plan follows, or there is no container and nothing follows. srun sends
 * the output from the keyword on. container_engine/submit/prepare.py has the same keywords. */
#define CE_WORD_PLAN "plan\n"
#define CE_WORD_HOST "host\n"

/* The prefix of the variables with the pieces of the planner's output; a decimal index follows. */
#define CE_CARRY_PART "SLURM_CE_PLAN_"
/* The variable in which srun may name ce-prolog (plugin_user/submit.c), and the user's own value */
#define CE_TASK_PROLOG "SLURM_TASK_PROLOG"
#define CE_CARRY_USER_PROLOG "SLURM_CE_USER_PROLOG"

/* When planning began and ended, for the trace: two numbers, in nanoseconds since 1970. */
#define CE_CARRY_TIMES "SLURM_CE_PLANNED"
/* Set for a container that lives with its job: its key, followed by the directory on the nodes below which it
 * is kept. */
#define CE_CARRY_JOB_CONTAINER "SLURM_CE_KEPT"
