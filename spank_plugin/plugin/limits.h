/* The resource limits that a user's tasks have, for what is started before Slurm sets them. */
#ifndef CE_LIMITS_H
#define CE_LIMITS_H

/* Sets the soft limits of this process that Slurm sends along in variables SLURM_RLIMIT_NAME=[U]number, as
 * far as its hard limits let it. Slurm itself sets them in a task just before it executes the command. What
 * cannot be understood or set stays as it is: these limits are the user's, and a task may lower them only. */
void ce_limits_apply(char **environment);

#endif
