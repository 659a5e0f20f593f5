/* The environment of a step, before it has tasks. */
#pragma once

#include <stddef.h>

/* NAME=value with a NUL after each. */
struct ce_step_env {
	const char *text;
	size_t size;
};

/* Return the entry at *at and move *at to the next one; NULL after the last. */
const char *ce_step_next(const struct ce_step_env *env, size_t *at);

/* Return the value of a variable, the last one if it is set twice; NULL if it is unset. */
const char *ce_step_variable(const struct ce_step_env *env, const char *name);

/* Return whether the text is a number of Slurm's, which has only digits. It is not if it is NULL. */
int ce_is_number(const char *text);
