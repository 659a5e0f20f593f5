/* Makes recorded answers as Python writes them, for tests and for random input. */
#ifndef CE_TESTS_ANSWER_TEXT_H
#define CE_TESTS_ANSWER_TEXT_H

#include <stddef.h>

#include "common/answers.h"

/* Return an answer to the query, with a NUL after it, on the heap; its size is in *whole. `rest` is what
 * follows the request: a table of witnesses, the result and the end. */
char *answer_text(const struct ce_query *query, const char *rest, size_t size, size_t *whole);

/* Check an answer, on the heap, as ce_answer_find does. */
int answer_check(const struct ce_query *query, size_t size, struct ce_answer *answer);

#endif
