#define _GNU_SOURCE
#include "prolog_mark.h"

#include <stdlib.h>
#include <string.h>

#include "common/help.h"
#include "common/inherit.h"
#include "common/planner_output.h"
#include "plugin/options.h"
#include "srun_options.h"
#include "submit_options.h"

/* Return whether the step might ask for a container. Slurm has not parsed the command line yet. */
static int may_ask(void)
{
	const char *option;

	return ce_options_asked() || ce_inherited(&option) != NULL || ce_srun_may_ask();
}

void ce_prolog_mark(const char *prolog)
{
	const char *own = getenv(CE_TASK_PROLOG);

	unsetenv(CE_CARRY_OWN_PROLOG);
	if (!ce_srun_may_hide_command() || !may_ask())
		return;
	if (own != NULL && strcmp(own, prolog) != 0)
		(void)setenv(CE_CARRY_OWN_PROLOG, own, 1);
	(void)setenv(CE_TASK_PROLOG, prolog, 1);
}

int ce_prolog_check(const char *prolog, struct ce_error *err)
{
	const char *named = getenv(CE_TASK_PROLOG);

	if (ce_options_components() == 1 && !ce_srun_hides_command())
		return 0;
	if (ce_srun_has_prolog())
		return ce_fail_below(err, CE_HELP_TASK_PROLOG,
				     "--task-prolog: with --bcast, --async or several components, srun needs "
				     "it to keep the command from nodes that do not load the plugin");
	if (named == NULL || strcmp(named, prolog) != 0)
		return ce_fail(err, "srun's options were not recognized, and the command could run on the "
				    "host of a node that does not load the plugin: write them in full");
	return 0;
}
