/* --environment and its alias --edf. */
#ifndef CE_OPTIONS_H
#define CE_OPTIONS_H

#include <slurm/spank.h>

#include "common/error.h"

/* Registers both; SLURM_ERROR after a message when Slurm refuses. */
int ce_options_register(spank_t spank);

/* The value given last, NULL when neither option was given. On a node its content means nothing: it
 * only says that a container was asked for. */
const char *ce_options_environment(void);

/* To be called after the options of each component of a heterogeneous job or step (of the only one, where
 * it is none). Fails when this one asked for something else than the first: Slurm hands the last value,
 * or its presence, to all of them. */
int ce_options_end_component(struct ce_error *err);

/* Whether the last two values that this component was given are the same: srun's command line says again
 * what it has inherited. */
int ce_options_repeated(void);

void ce_options_clear(void);

#endif
