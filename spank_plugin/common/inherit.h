/*
 * The options that srun, salloc and sbatch inherit from the job in which they are started, even if their
 * environment has been cleared. Runs in these commands, as the user, and in ce-host before it executes them.
 */
#pragma once

/* The prefix of the variables by which Slurm passes a job's options to the programs started in it;
 * the option's name follows. */
#define CE_INHERITED "SLURM_SPANK_" CE_INHERITED_PLAIN
/* The prefix without SLURM_SPANK_. In the shell of salloc, variables with both prefixes are set. */
#define CE_INHERITED_PLAIN "_SLURM_SPANK_OPTION_container_engine_"
/* The name of a variable: where it is "no", the command inherits nothing. For steps that the engine itself
 * starts (container_engine/base/slurm.py). */
#define CE_INHERIT "CE_INHERIT"

/* Restore inherited options; call this before Slurm looks for them. If the environment has none and
 * `descends` is set, take them from the nearest ancestor process of the same user that was started with one.
 * If CE_INHERIT is "no", remove all of them, and CE_INHERIT itself, which must not reach the step, and
 * return 0; else return 1. Return -1 with errno if an ancestor could not be asked, for want of descriptors
 * perhaps: whether the command has a container to inherit is not known then, so it must not go on without. */
int ce_inherit(int descends);

/* Return the value of the option that was removed because of CE_INHERIT; NULL if there was none. */
const char *ce_not_inherited(void);

/* Return the value of an inherited option that asks for a container and put the option's name, such as
 * --environment, into *option; NULL if there is none. */
const char *ce_inherited(const char **option);
