/* The option --environment, its alias --edf, and the options of pyxis. */
#ifndef CE_OPTIONS_H
#define CE_OPTIONS_H

#include <slurm/spank.h>

#include "common/error.h"

/* names the environment of commands without the option */
#define CE_ENVIRONMENT "CE_ENVIRONMENT"

/* Register the options, those of pyxis only if `with_pyxis` is set; return SLURM_ERROR, after a message, if
 * Slurm refuses. */
int ce_options_register(spank_t spank, int with_pyxis);

/* Set the variables from which Slurm takes inherited options, for options that the user's variables ask for
 * and the job does not have: CE_ENVIRONMENT, and those of pyxis if `with_pyxis` is set. Call this before
 * Slurm looks for options. */
void ce_options_from_variables(int with_pyxis);

/* Return whether any of the options was given. On a node, only this matters. */
int ce_options_asked(void);

/* Return the last value of --environment or --edf, NULL if neither was given. On a node its content is
 * meaningless. */
const char *ce_options_environment(void);

/* Return what messages call the requested container: the environment, or else the first option of pyxis. */
const char *ce_options_shown(void);

/* Return the words for the planner, which end with NULL: the options of pyxis in their order, "--", and
 * the environment, if any. They are valid until the next call. */
const char *const *ce_options_words(void);

/* Return the name of an option that takes a list and was given several times with different values; NULL if
 * there is none. */
const char *ce_options_split_list(void);

/* Compare this component's request with the first one's; call this after the options of each component of a
 * heterogeneous job or step (once, if it is not heterogeneous). Return 0, or -1 with the error if they
 * differ: Slurm passes the last value, or its presence, to all components. */
int ce_options_end_component(struct ce_error *err);

/* Return how many components' options have been read. */
int ce_options_components(void);

/* Return whether the last two values given to this component are the same: srun's command line
 * repeats what it has inherited. */
int ce_options_repeated(void);

/* Forget all options that were given, and free them. */
void ce_options_clear(void);

#endif
