#include "options.h"

#include <stdlib.h>
#include <string.h>

static char *environment;

/* Slurm calls this first for an option inherited from sbatch or salloc, then for one on the command
 * line, in that order: the last one is the user's nearest word. */
static int take(int value, const char *argument, int remote)
{
	(void)value;
	(void)remote;
	if (argument == NULL || argument[0] == '\0') {
		slurm_error("container_engine: the name or path of an environment file is missing");
		return -1;
	}
	char *copy = strdup(argument);
	if (copy == NULL)
		return -1;
	free(environment);
	environment = copy;
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

void ce_options_clear(void)
{
	free(environment);
	environment = NULL;
}
