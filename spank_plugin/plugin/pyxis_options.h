/* The options of pyxis, which the planner understands, and pyxis itself where plugstack.conf loads it,
 * too. */
#pragma once

#include <slurm/spank.h>

/* Return whether this process has loaded pyxis. Slurm loads all plugins before it initializes the first, so
 * the answer does not depend on their order. */
int ce_pyxis_is_loaded(void);

/* Register the options with this callback, which gets their index. Return SLURM_ERROR, after a message, if
 * Slurm refuses. */
int ce_pyxis_register(spank_t spank, spank_opt_cb_f take);

/* Return the option with this index as the planner takes it, --NAME or --NAME=ARGUMENT, on the heap. */
char *ce_pyxis_word(int index, const char *argument);

/* Return the name of the option with this index; NULL after the last. */
const char *ce_pyxis_name(int index);
