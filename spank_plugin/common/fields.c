#include "fields.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 18 };

const char *ce_take(struct ce_fields *fields)
{
	const char *field = fields->next;
	const char *nul = memchr(field, '\0', (size_t)(fields->end - field));

	fields->bad |= nul == NULL;
	if (nul == NULL)
		return "";
	fields->next = nul + 1;
	return field;
}

long long ce_take_number(struct ce_fields *fields)
{
	const char *field = ce_take(fields);
	size_t digits = strspn(field, "0123456789");

	if (digits == 0 || digits > MAX_DIGITS || field[digits] != '\0')
		fields->bad = 1;
	return fields->bad ? 0 : strtoll(field, NULL, 10);
}

const char *ce_take_bytes(struct ce_fields *fields, size_t *size)
{
	long long count = ce_take_number(fields);
	const char *bytes = fields->next;

	*size = 0;
	if (fields->bad || count >= fields->end - bytes || bytes[count] != '\0') {
		fields->bad = 1;
		return "";
	}
	*size = (size_t)count;
	fields->next = bytes + count + 1;
	return bytes;
}

struct ce_fields ce_take_table(struct ce_fields *fields, int width)
{
	struct ce_fields table = *fields;

	for (long long left = ce_take_number(fields); left > 0 && !fields->bad; left--) {
		for (int i = 0; i < width; i++)
			(void)ce_take(fields);
	}
	return table;
}

int ce_is_next(struct ce_fields *fields, const char *expected)
{
	return strcmp(ce_take(fields), expected) == 0 && !fields->bad;
}
