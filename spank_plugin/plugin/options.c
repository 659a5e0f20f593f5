#define _GNU_SOURCE
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "pyxis_options.h"

struct ce_options ce_options;

/* Take the value of an option. Slurm calls this first for an option inherited from sbatch or salloc, then for
 * one on the command line, so the last one takes precedence. */
static int take(int value, const char *argument, int remote)
{
	(void)value;
	(void)remote;
	/* an empty name is refused by the planner: Slurm would reword an error returned here */
	char *copy = strdup(argument != NULL ? argument : "");
	if (copy == NULL)
		return -1;
	ce_options.repeated = ce_options.environment != NULL && strcmp(ce_options.environment, copy) == 0;
	free(ce_options.environment);
	ce_options.environment = copy;
	ce_options.asked = 1;
	return 0;
}

static int take_pyxis(int index, const char *argument, int remote)
{
	(void)remote;
	if (ce_options.count == CE_MOST_OPTIONS)
		return -1;
	ce_options.given[ce_options.count] = ce_pyxis_word(index, argument);
	return ce_options.given[ce_options.count] != NULL ? (ce_options.count++, 0) : -1;
}

/* Slurm does not change the strings. */
static struct spank_option options[] = {
	{ (char *)"environment", (char *)"NAME|PATH",
	  (char *)"run inside the container that this environment definition file describes", 1, 0, take },
	{ (char *)"edf", (char *)"NAME|PATH", (char *)"the same as --environment", 1, 0, take },
};

int ce_options_register(spank_t spank, int with_pyxis)
{
	ce_options.with_pyxis = with_pyxis;
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) {
			slurm_error("container_engine: cannot register --%s", options[i].name);
			return SLURM_ERROR;
		}
	}
	return with_pyxis ? ce_pyxis_register(spank, take_pyxis) : SLURM_SUCCESS;
}

int ce_options_asked(void)
{
	return ce_options.environment != NULL || ce_options.count > 0;
}

const char *ce_options_shown(void)
{
	return ce_options.environment != NULL ? ce_options.environment
	       : ce_options.count > 0	      ? ce_options.given[0]
					      : "";
}

void ce_options_clear(void)
{
	free(ce_options.environment);
	while (ce_options.count > 0)
		free(ce_options.given[--ce_options.count]);
	ce_options = (struct ce_options){ 0 };
}
