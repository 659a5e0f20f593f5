/*
 * What the planner prints for the plugin, and what the plugin's variables carry of it to programs on the nodes.
 */
#ifndef CE_CARRIED_H
#define CE_CARRIED_H

/* Keywords of the planner's output, which is carried from there on: a plan follows, or there is no container and
 * nothing follows. container_engine/submit/prepare.py uses the same words. */
#define CE_WORD_PLAN "plan\n"
#define CE_WORD_HOST "host\n"

/* Variables with the pieces of that text; a decimal index follows. */
#define CE_CARRY_PART "SLURM_CE_PLAN_"
/* The user's own SLURM_TASK_PROLOG, where ce-prolog has its place (plugin/plugin_prolog.h). */
#define CE_CARRY_OWN_PROLOG "SLURM_CE_OWN_PROLOG"

/* When planning began and ended, for the trace: two numbers, in nanoseconds since 1970. */
#define CE_CARRY_TIMES "SLURM_CE_PLANNED"
/* Set for a container that lives with its job: its key, and the directory of the nodes below which it is kept. */
#define CE_CARRY_KEPT "SLURM_CE_KEPT"

#endif
