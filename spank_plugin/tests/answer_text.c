#define _GNU_SOURCE
#include "answer_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/io.h"

/* Return a file with these fields and their checksum. */
static char *with_checksum(const char *fields, size_t size, size_t *whole)
{
	char *text = NULL;
	FILE *stream = open_memstream(&text, whole);

	if (stream == NULL)
		abort();
	fprintf(stream, "container-engine answer 1\n%08x%c", ce_crc(0, fields, size), 0);
	fwrite(fields, 1, size, stream);
	if (fclose(stream) != 0)
		abort();
	return text;
}

char *answer_text(const struct ce_query *query, const char *rest, size_t size, size_t *whole)
{
	size_t request_size = 0, fields_size = 0;
	char *fields = NULL;
	CE_AUTO_FREE char *request = ce_answer_request(query, &request_size);
	FILE *stream = open_memstream(&fields, &fields_size);

	if (request == NULL || stream == NULL)
		abort();
	fprintf(stream, "%zu%c", request_size, 0);
	fwrite(request, 1, request_size, stream);
	fputc(0, stream);
	fwrite(rest, 1, size, stream);
	if (fclose(stream) != 0)
		abort();
	char *text = with_checksum(fields, fields_size, whole);
	free(fields);
	return text;
}

int answer_check(const struct ce_query *query, size_t size, struct ce_answer *answer)
{
	size_t request_size = 0;
	CE_AUTO_FREE char *request = ce_answer_request(query, &request_size);

	if (request == NULL)
		abort();
	return ce_answer_check(query, request, request_size, size, answer);
}
