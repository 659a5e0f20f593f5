/* The meaning of the options for srun, salloc and sbatch, in which this runs as the user. */
#pragma once

#include "common/error.h"

/* names the environment of commands without the option */
#define CE_ENVIRONMENT "CE_ENVIRONMENT"

/* The variables by which pyxis is asked for a container. */
#define CE_PYXIS_IMAGE "PYXIS_CONTAINER_IMAGE"
#define CE_PYXIS_NAME "PYXIS_CONTAINER_NAME"

/* Set the variables from which Slurm takes inherited options, for options that the user's variables ask for
 * and the job does not have: CE_ENVIRONMENT, and those of pyxis if `with_pyxis` is set. Call this before
 * Slurm looks for options. */
void ce_options_from_variables(int with_pyxis);

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

/* Forget the components. */
void ce_options_forget_components(void);

/* Return whether the word is one of the options, with or without its value. */
int ce_pyxis_is_option(const char *word);

/* Return -1 with the error if pyxis is loaded and this command, which asks for an environment, also asks
 * pyxis for a container, or has an option of pyxis, which would have no effect; else 0. */
int ce_pyxis_check_alone(struct ce_error *err);
