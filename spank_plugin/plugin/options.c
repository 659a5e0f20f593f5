#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "common/help.h"

static char *environment;

/* For a heterogeneous job or step: what its first component asked for (NULL: nothing), how many components
 * there have been, and whether the one whose options are being read asked for something. */
static char *first;
static int components, asked;

/* Whether the effective value is the same as the one before it. */
static int repeated;

/* Take the value of an option. Slurm calls this first for an option inherited from sbatch or salloc, then for
 * one on the command line, so the last one takes precedence. */
static int take(int value, const char *argument, int remote)
{
	(void)value;
	(void)remote;
	/* Let the planner refuse an empty name: Slurm would reword an error returned here. */
	char *copy = strdup(argument != NULL ? argument : "");
	if (copy == NULL)
		return -1;
	repeated = environment != NULL && strcmp(environment, copy) == 0;
	free(environment);
	environment = copy;
	asked = 1;
	return 0;
}

static char name_environment[] = "environment", name_edf[] = "edf";
static char value_name[] = "NAME|PATH";
static char usage_environment[] =
	"run inside the container that this environment definition file describes";
static char usage_edf[] = "the same as --environment";

static struct spank_option options[] = {
	{ name_environment, value_name, usage_environment, 1, 0, take },
	{ name_edf, value_name, usage_edf, 1, 0, take },
};

int ce_options_register(spank_t spank)
{
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) {
			slurm_error("container_engine: cannot register --%s", options[i].name);
			return SLURM_ERROR;
		}
	}
	return SLURM_SUCCESS;
}

const char *ce_options_environment(void)
{
	return environment;
}

int ce_options_repeated(void)
{
	return repeated;
}

int ce_options_end_component(struct ce_error *err)
{
	const char *mine = asked ? environment : NULL;

	asked = 0;
	if (components++ == 0) {
		first = mine != NULL ? strdup(mine) : NULL;
		return mine == NULL || first != NULL ? 0 : ce_fail(err, "out of memory");
	}
	if ((mine == NULL && first == NULL) ||
	    (mine != NULL && first != NULL && strcmp(mine, first) == 0))
		return 0;
	return ce_fail_below(err, CE_HELP_COMPONENTS_DIFFER,
		       "--environment: '%s' for one component and '%s' for another: Slurm gives all "
		       "components of a heterogeneous job or step the same; name one for each of them, "
		       "or start separate steps",
		       first != NULL ? first : "", mine != NULL ? mine : "");
}

void ce_options_clear(void)
{
	free(environment);
	free(first);
	environment = first = NULL;
	components = asked = repeated = 0;
}
