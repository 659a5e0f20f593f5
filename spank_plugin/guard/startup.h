/* The start-up steps of an environment file in a start without Python, as
 * container_engine/node/start/startup_steps.py runs them in others. */
#pragma once

#include "common/fields.h"
#include "reply.h"
#include "step_env.h"

enum { CE_STARTUP_WORDS = 8 };

struct ce_startup {
	long long count; /* of the words, at most CE_STARTUP_WORDS; 0 for no steps */
	struct ce_fields words; /* of the command that runs them */
	int log; /* what they have printed; -1 if they have not been started */
	int status; /* as of waitpid, -1 if they have not ended in time */
};

/* Run the steps in a container that has been reported, and add their changes to the records of *ready, which
 * are on the heap then. Return 0, or -1 on failure: with a log, if the steps have failed. */
int ce_startup_run(struct ce_startup *startup, const struct ce_step_env *env, const struct ce_report *report,
		   long long timeout_ms, const char *prefix, struct ce_ready *ready);
