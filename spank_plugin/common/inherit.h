/*
 * What srun, salloc and sbatch inherit from the job they are started in, also where somebody has cleaned
 * their environment. Runs in them, as the user; also in ce-host, before them.
 */
#ifndef CE_INHERIT_H
#define CE_INHERIT_H

/* How Slurm names the option of a job to the programs that are started in it; the option's name follows. */
#define CE_INHERITED "SLURM_SPANK_" CE_INHERITED_PLAIN
/* The shell of salloc has it under both names. */
#define CE_INHERITED_PLAIN "_SLURM_SPANK_OPTION_container_engine_"
/* With the value "no": this command inherits nothing. For steps of the engine's own (container_engine/process.py). */
#define CE_INHERIT "CE_INHERIT"

/* To be called before Slurm looks for inherited options. Where the environment has none and `descends`, the
 * nearest process that this one descends from, is the same user's and had one when it was started gives its
 * own back. Where CE_INHERIT says so, takes all of them out, with CE_INHERIT itself, which is not for what
 * runs in the step. */
void ce_inherit(int descends);

/* The value of an option that is to be inherited, NULL for none. */
const char *ce_inherited(void);

#endif
