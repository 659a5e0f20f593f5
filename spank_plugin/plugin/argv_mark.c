#define _GNU_SOURCE
#include "argv_mark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/join.h"
#include "generated/help.h"

/* The mark is a path, so that Slurm does not search PATH for it, with no component longer than NAME_MAX.
 * Slurm prints it as it is, inside a message of its own. */
static const char mark[] = "/\nce: error: " CE_NOT_LOADED "\n" CE_HELP_PLUGIN_CONFIGURATION "\n/";

static int is_marked(const char *command)
{
	return strncmp(command, mark, strlen(mark)) == 0;
}

int ce_mark_argv(char **argv, struct ce_error *err)
{
	char *marked = NULL;

	if (is_marked(argv[0]))
		return 0;
	if (asprintf(&marked, "%s%s", mark, argv[0]) < 0)
		return ce_fail(err, "out of memory");
	argv[0] = marked;
	return 0;
}

int ce_unmark_argv(char **argv)
{
	if (!is_marked(argv[0]))
		return 0;
	memmove(argv[0], argv[0] + strlen(mark), strlen(argv[0] + strlen(mark)) + 1);
	return 1;
}

/* One line, because scripts print their environment. Only its beginning is compared: the rest may
 * come from another release. */
#define JOB_MARK "ce: error: "
static const char job_mark[] =
	JOB_MARK "this host's Slurm does not load the plugin of --environment, which this job "
		 "uses; nothing was started; ce help plugin-configuration";

static int is_job_marked(const char *value)
{
	return value != NULL && strncmp(value, JOB_MARK, strlen(JOB_MARK)) == 0;
}

int ce_mark_job(struct ce_error *err)
{
	const char *own = getenv(CE_JOB_MARK);

	if (is_job_marked(own))
		return 0;
	if ((own != NULL && setenv(CE_JOB_MARKED, own, 1) < 0) || setenv(CE_JOB_MARK, job_mark, 1) < 0)
		return ce_fail(err, "out of memory");
	return 0;
}

void ce_unmark_job(void)
{
	const char *own = getenv(CE_JOB_MARKED);

	if (!is_job_marked(getenv(CE_JOB_MARK)))
		return;
	if (own == NULL || setenv(CE_JOB_MARK, own, 1) < 0)
		unsetenv(CE_JOB_MARK);
	unsetenv(CE_JOB_MARKED);
}
