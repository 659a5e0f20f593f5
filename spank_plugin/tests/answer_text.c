#define _GNU_SOURCE
#include "answer_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/io.h"
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
	char *text = memo_text("container-engine answer 1\n", fields, fields_size, whole);
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
