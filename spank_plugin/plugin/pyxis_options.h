/* The options of pyxis, which the planner understands, and pyxis itself where plugstack.conf loads it,
 * too. */
#ifndef CE_PYXIS_OPTIONS_H
#define CE_PYXIS_OPTIONS_H

#include <slurm/spank.h>

#include "common/error.h"

/* The variables by which pyxis is asked for a container. */
#define CE_PYXIS_IMAGE "PYXIS_CONTAINER_IMAGE"
#define CE_PYXIS_NAME "PYXIS_CONTAINER_NAME"

/* Return whether this process has loaded pyxis. Slurm loads all plugins before it initializes the first, so
 * the answer does not depend on their order. */
int ce_pyxis_is_loaded(void);

/* Register the options with this callback, which gets their index. Return SLURM_ERROR, after a message, if
 * Slurm refuses. */
int ce_pyxis_register(spank_t spank, spank_opt_cb_f take);

/* Return the option with this index as the planner takes it, --NAME or --NAME=ARGUMENT, on the heap. */
char *ce_pyxis_word(int index, const char *argument);

/* Return whether the word is one of the options, with or without its value. */
int ce_pyxis_is_option(const char *word);

/* Return whether a variable of pyxis has a value. */
int ce_pyxis_has_variables(void);

/* Return -1 with the error if pyxis is loaded and this command, which asks for an environment, also asks
 * pyxis for a container, or has an option of pyxis, which would have no effect; else 0. */
int ce_pyxis_check_alone(struct ce_error *err);

#endif
