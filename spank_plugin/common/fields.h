/* Fields of text, each of which ends with NUL: those of a recorded answer (answers.h), and of a specification
 * for the guard or ce-reaper. */
#pragma once

#include <stddef.h>

/* A place in a text, from which fields are taken. */
struct ce_fields {
	const char *next, *end;
	int bad; /* set when a field that was asked for is missing, or is not a number */
};

/* Return the next field; "" if there is none, and set `bad`. */
const char *ce_take(struct ce_fields *fields);

/* Return the next field as a number; 0 if it has other characters than digits, or more than 18, and set
 * `bad`. */
long long ce_take_number(struct ce_fields *fields);

/* Return the next bytes, which may include NULs, and their number in *size. The field before them has this
 * number, and a NUL follows them. If that is not so, return "" with *size 0 and set `bad`. */
const char *ce_take_bytes(struct ce_fields *fields, size_t *size);

/* Return the beginning of a table and move past it. A table is the number of its entries, then `width` fields
 * for each. */
struct ce_fields ce_take_table(struct ce_fields *fields, int width);

/* Take the next field and return whether it is `expected`. */
int ce_is_next(struct ce_fields *fields, const char *expected);
