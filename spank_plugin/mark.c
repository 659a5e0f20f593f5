#define _GNU_SOURCE
#include "mark.h"

#include <stdio.h>
#include <string.h>

#include "help.h"

/* A path, so that Slurm does not look for it in PATH, of which no part is longer than a name may be. Slurm
 * prints it as it is between words of its own. */
static const char mark[] = "/\nce: error: " CE_NOT_LOADED "\n" CE_HELP_PLUGIN "\n/";

static int is_marked(const char *command)
{
	return strncmp(command, mark, strlen(mark)) == 0;
}

int ce_mark(char **argv, struct ce_error *err)
{
	char *marked = NULL;

	if (is_marked(argv[0]))
		return 0;
	if (asprintf(&marked, "%s%s", mark, argv[0]) < 0)
		return ce_fail(err, "out of memory");
	argv[0] = marked;
	return 0;
}

int ce_unmark(char **argv)
{
	if (!is_marked(argv[0]))
		return 0;
	memmove(argv[0], argv[0] + strlen(mark), strlen(argv[0] + strlen(mark)) + 1);
	return 1;
}
