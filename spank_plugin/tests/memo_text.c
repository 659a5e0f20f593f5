#define _GNU_SOURCE
#include "memo_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/memo_file.h"

char *memo_text(const char *magic, const char *fields, size_t size, size_t *whole)
{
	char *text = NULL;
	FILE *stream = open_memstream(&text, whole);

	if (stream == NULL)
		abort();
	fprintf(stream, "%s%08x%c", magic, ce_crc(0, fields, size), 0);
	fwrite(fields, 1, size, stream);
	if (fclose(stream) != 0)
		abort();
	return text;
}
