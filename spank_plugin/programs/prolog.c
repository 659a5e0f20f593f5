/*
 * ce-prolog: the task prolog of a step whose command cannot be marked (plugin_user/submit.c).
 * task-prolog, a link to it: the site's TaskProlog, which Slurm runs before batch scripts, too.
 *
 * On a node that does not load the plugin, the plan is still in the environment of the step, from which the
 * plugin would have removed it. Then this program ends by a signal, because Slurm prints the output of such a
 * prolog, and does not start the task. On all other nodes ce-prolog becomes the user's own task prolog, if
 * there is one; task-prolog leaves that to Slurm. Slurm passes argv[0] as srun or slurm.conf names it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/join.h"
#include "common/planner_output.h"
#include "common/program.h"
#include "generated/help.h"

static int has_plan(void)
{
	const char *text = getenv(CE_CARRY_PART "0");

	return text != NULL && strncmp(text, CE_WORD_HOST, strlen(CE_WORD_HOST)) != 0;
}

/* In the first task of the node, print the reason and end by a signal; in the others, end with 125. The text
 * begins with a newline, because Slurm puts words of its own before it. */
static void refuse(void)
{
	const char *task = getenv("SLURM_LOCALID");

	if (task != NULL && strcmp(task, "0") != 0)
		_exit(CE_EXIT_ENGINE); /* the first task of the node prints it */
	puts("\nce: error: " CE_NOT_LOADED "\n" CE_HELP_PLUGIN_CONFIGURATION);
	fflush(stdout);
	raise(SIGKILL);
	_exit(CE_EXIT_ENGINE);
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	const char *own = getenv(CE_CARRY_USER_PROLOG), *named = getenv("SLURM_TASK_PROLOG");

	if (has_plan())
		refuse();
	if (argc < 1 || ce_is_called(argv[0], "task-prolog"))
		return 0;
	/* where the plugin has removed the plan, it has also restored SLURM_TASK_PROLOG */
	if (own == NULL && named != NULL && strcmp(named, argv[0]) != 0)
		own = named;
	if (argc != 1 || own == NULL || own[0] == '\0')
		return 0;
	execl(own, own, (char *)NULL);
	fprintf(stderr, "ce: error: SLURM_TASK_PROLOG=%s: %s\n", own, strerror(errno));
	return CE_EXIT_ENGINE;
}
