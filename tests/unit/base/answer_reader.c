/* Prints the result of a recorded answer: DIRECTORY PREFIX REQUEST, with "/" for NUL in the request. Exit
 * code: 0, or 1 without one that is right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/answers.h"
#include "common/io.h"

static const char *variable(const void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

int main(int argc, char **argv)
{
	struct ce_answer answer;

	if (argc != 4)
		return 2;
	const struct ce_query query = { argv[2], 0, argv[3], strlen(argv[3]), variable, NULL };
	int directory = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (char *slash; (slash = strchr(argv[3], '/')) != NULL;)
		*slash = '\0';
	if (directory < 0 || ce_answer_find(directory, &query, &answer) < 0)
		return 1;
	const char *result = answer.result.next;
	return ce_write_all(1, result, (size_t)(answer.result.end - result)) < 0 ? 2 : 0;
}
