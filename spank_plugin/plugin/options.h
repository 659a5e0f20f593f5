/* The option --environment, its alias --edf, and the options of pyxis. */
#pragma once

#include <slurm/spank.h>

enum { CE_MOST_OPTIONS = 256 };

/* The options that were given. On a node only matters whether there are any. */
extern struct ce_options {
	char *environment; /* the last value of --environment or --edf, on the heap; NULL for none */
	char *given[CE_MOST_OPTIONS]; /* options of pyxis, as the planner takes them, on the heap */
	int count;
	int with_pyxis; /* the options of pyxis are registered */
	int asked; /* this component of a heterogeneous job or step has asked for an environment */
	int repeated; /* the last two environments are the same: srun's line repeats what it has inherited */
} ce_options;

/* Register the options, those of pyxis only if `with_pyxis` is set; return SLURM_ERROR, after a message, if
 * Slurm refuses. */
int ce_options_register(spank_t spank, int with_pyxis);

/* Return whether any of the options was given. */
int ce_options_asked(void);

/* Return what messages call the requested container: the environment, or else the first option of pyxis. */
const char *ce_options_shown(void);

/* Forget all options that were given, and free them. */
void ce_options_clear(void);

/* Return whether this process has loaded pyxis. Slurm loads all plugins before it initializes the first, so
 * the answer does not depend on their order. */
int ce_pyxis_is_loaded(void);

/* Return the name of pyxis's option with this index; NULL after the last. */
const char *ce_pyxis_name(int index);
