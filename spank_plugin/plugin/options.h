/* The option --environment and its alias --edf. */
#ifndef CE_OPTIONS_H
#define CE_OPTIONS_H

#include <slurm/spank.h>

#include "common/error.h"

/* Register both; return SLURM_ERROR, after a message, if Slurm refuses. */
int ce_options_register(spank_t spank);

/* Return the last value given, NULL if neither option was given. On a node its content is meaningless: it
 * only shows that a container was requested. */
const char *ce_options_environment(void);

/* Compare this component's request with the first one's; call this after the options of each component of a
 * heterogeneous job or step (once, if it is not heterogeneous). Fail if they differ: Slurm passes the last
 * value, or its presence, to all components. */
int ce_options_end_component(struct ce_error *err);

/* Return whether the last two values given to this component are the same: srun's command line
 * repeats what it has inherited. */
int ce_options_repeated(void);

void ce_options_clear(void);

#endif
