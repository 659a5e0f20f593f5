/*
 * Cached plans: with one, no Python starts. Python records a plan that it has made
 * (container_engine/submit/plan_output.py).
 *
 * The request is "=" and the environment's name, or "-", the current directory and the options, each with a
 * NUL after it. The fields of the result: notices, the beginning of the planner's output, number of parts of
 * the plan and each of them.
 */
#pragma once

#include "common/answers.h"

/* A user's request for a plan. */
struct ce_request {
	const char *name; /* of the environment; NULL without one */
	const char *prefix;
	char *const *options; /* options of pyxis, NULL after the last */
	char **environment;
};

/* A cached plan. */
struct ce_plan {
	const char *notices; /* lines for the user; points into the answer, as do the others */
	const char *head;    /* the planner's output before the plan: facts for the plugin, and a keyword */
	struct ce_fields parts; /* number, then texts: the plan is these with a secret between each two */
};

/* Find the user's plan of this request in the current directory. Return 0 with the answer, whose text the
 * caller frees, or -1 if there is none or anything about it is doubtful: no reason is printed, because a new
 * plan is made. */
int ce_plan_recall(const struct ce_request *request, struct ce_answer *answer, struct ce_plan *plan);

/* Read the result of an answer, into which *plan then points. Return 0, or -1 if it has another form. */
int ce_plan_read(struct ce_fields result, struct ce_plan *plan);

/* Return the plan's text with a new secret in each place for one, on the heap; the caller frees it. Return ""
 * if there is to be no container, NULL on failure. */
char *ce_plan_text(const struct ce_plan *plan);
