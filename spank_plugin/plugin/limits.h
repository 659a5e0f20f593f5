/* The resource limits of a user's tasks, for processes that are started before Slurm sets them. */
#ifndef CE_LIMITS_H
#define CE_LIMITS_H

/* Set the soft limits of this process that Slurm passes in variables SLURM_RLIMIT_NAME=[U]number, as far as
 * the hard limits allow. Slurm itself sets them in a task only just before it executes the command. A limit
 * that cannot be parsed or set stays as it is. */
void ce_limits_apply(char **environment);

#endif
