/* --environment and its alias --edf. */
#ifndef CE_OPTIONS_H
#define CE_OPTIONS_H

#include <slurm/spank.h>

/* Registers both; SLURM_ERROR after a message when Slurm refuses. */
int ce_options_register(spank_t spank);

/* The value given last, NULL when neither option was given. On a node its content means nothing: it
 * only says that a container was asked for. */
const char *ce_options_environment(void);

void ce_options_clear(void);

#endif
