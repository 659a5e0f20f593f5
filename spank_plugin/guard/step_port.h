/* The port of a step, which differs in each one, in what the answer of another step has
 * (container_engine/node/step_port.py). */
#pragma once

#include "step_env.h"

/* All ports have as many digits, so that one can replace another. */
enum { CE_PORT_FIRST = 20000, CE_PORT_COUNT = 10000, CE_PORT_STEPS_APART = 16, CE_PORT_DIGITS = 5 };

/* Write this step's port as digits without a NUL. Return 0, or -1 if job or step has no number. */
int ce_step_port(const struct ce_step_env *env, char port[CE_PORT_DIGITS]);

/* Write the port at this offset, where the text must have another one. Return 0, or -1 if it has none. */
int ce_step_port_enter(const char port[CE_PORT_DIGITS], char *text, size_t size, long long offset);
