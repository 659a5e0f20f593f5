/*
 * Remembered plans: with one, no Python starts. Python writes a memo of a plan that it has made, with
 * everything that the plan was made from (container_engine/submit/plan_memo.py).
 *
 * Its fields (common/memo_file.h): version of the engine, uid, key (name, directory, prefix, options), expiry
 * in seconds since 1970 (0: never), number of files, path and signature of each, number of variables, name
 * and value of each, notices, the beginning of the planner's output, number of parts of the plan and each of
 * them, and the word "end".
 */
#ifndef CE_PLAN_MEMO_H
#define CE_PLAN_MEMO_H

#include <stddef.h>
#include <sys/types.h>

#include "common/memo_file.h"

/* A user's request for a plan. */
struct ce_request {
	const char *name; /* of the environment; NULL without one */
	const char *prefix;
	char *const *options; /* options of pyxis, NULL after the last */
	char **environment;
	uid_t uid;
};

/* A remembered plan that is still right. */
struct ce_memo {
	char *text; /* the memo, on the heap, which the caller frees */
	const char *notices; /* lines for the user; points into `text`, as do the others */
	const char *head;    /* the planner's output before the plan: facts for the plugin, and a keyword */
	struct ce_fields parts; /* number, then texts: the plan is these with a secret between each two */
};

/* Find the user's memo of this request in the current directory. Return 0, or -1 if there is none or anything
 * about it is doubtful: no reason is printed, because a new plan is made. */
int ce_memo_recall(const struct ce_request *request, struct ce_memo *memo);

/* Check the memo that memo->text holds, of this size, with a NUL after it. Return 0 if it has this key, has
 * not expired and nothing that it was made from has changed, else -1. After success the other members of
 * *memo point into it. */
int ce_memo_check(const struct ce_request *request, const char *key, size_t key_size, size_t size,
		  struct ce_memo *memo);

/* Return the plan with a new secret in each place for one, on the heap; the caller frees it. Return "" if
 * there is to be no container, NULL on failure. */
char *ce_memo_plan(const struct ce_memo *memo);

#endif
