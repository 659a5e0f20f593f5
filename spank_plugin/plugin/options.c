#define _GNU_SOURCE
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/help.h"
#include "common/inherit.h"
#include "common/io.h"
#include "pyxis_options.h"

/* the planner's option for taking variables of pyxis into account (container_engine/compat/pyxis/names.py) */
#define VARIABLES_COUNT "--container-variables"

static char *environment;

/* The options of pyxis, as the planner takes them, and the words made of them and the environment. */
enum { MAX_GIVEN = 256 };
static char *given[MAX_GIVEN];
static int count, has_pyxis;
static const char *words[MAX_GIVEN + 4];

/* For a heterogeneous job or step: what its first component asked for (NULL: nothing), how many components
 * there have been, whether the one whose options are being read asked for an environment, and the index of
 * its first option of pyxis. */
static char *first_request;
static int components, asked, component_start;

/* Set if the effective value equals the one before it. */
static int repeated;

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
	repeated = environment != NULL && strcmp(environment, copy) == 0;
	free(environment);
	environment = copy;
	asked = 1;
	return 0;
}

static int take_pyxis(int index, const char *argument, int remote)
{
	(void)remote;
	if (count == MAX_GIVEN)
		return -1;
	given[count] = ce_pyxis_word(index, argument);
	return given[count] != NULL ? (count++, 0) : -1;
}

/* Slurm does not change the strings. */
static struct spank_option options[] = {
	{ (char *)"environment", (char *)"NAME|PATH",
	  (char *)"run inside the container that this environment definition file describes", 1, 0, take },
	{ (char *)"edf", (char *)"NAME|PATH", (char *)"the same as --environment", 1, 0, take },
};

int ce_options_register(spank_t spank, int with_pyxis)
{
	has_pyxis = with_pyxis;
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) {
			slurm_error("container_engine: cannot register --%s", options[i].name);
			return SLURM_ERROR;
		}
	}
	return with_pyxis ? ce_pyxis_register(spank, take_pyxis) : SLURM_SUCCESS;
}

/* Variables of the user, and the variables from which Slurm takes the same options. */
static const struct {
	const char *variable, *option, *alias;
	int of_pyxis;
} variables[] = {
	{ CE_ENVIRONMENT, CE_INHERITED "environment", CE_INHERITED "edf", 0 },
	{ CE_PYXIS_IMAGE, CE_INHERITED "container_image", NULL, 1 },
	{ CE_PYXIS_NAME, CE_INHERITED "container_name", NULL, 1 },
};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

void ce_options_from_variables(int with_pyxis)
{
	for (int i = 0; i < VARIABLES; i++) {
		const char *value = getenv(variables[i].variable), *alias = variables[i].alias;
		/* an empty one, too: the planner refuses it, as a variable may be set to nothing */
		if (value == NULL || (variables[i].of_pyxis && !with_pyxis) ||
		    getenv(variables[i].option) != NULL || (alias != NULL && getenv(alias) != NULL))
			continue;
		(void)setenv(variables[i].option, value, 1);
	}
}

int ce_options_asked(void)
{
	return environment != NULL || count > 0;
}

const char *ce_options_shown(void)
{
	return environment != NULL ? environment : count > 0 ? given[0] : "";
}

const char *const *ce_options_words(void)
{
	int used = 0;

	if (has_pyxis && ce_pyxis_has_variables())
		words[used++] = VARIABLES_COUNT;
	for (int i = 0; i < count; i++)
		words[used++] = given[i];
	words[used++] = "--";
	words[used++] = environment;
	words[used] = NULL;
	return words;
}

/* Return whether an option that begins like this was given with two values. */
static int is_split(const char *option)
{
	const char *seen = NULL;

	for (int i = 0; i < count; i++) {
		if (strncmp(given[i], option, strlen(option)) != 0)
			continue;
		if (seen != NULL && strcmp(seen, given[i]) != 0)
			return 1;
		seen = given[i];
	}
	return 0;
}

const char *ce_options_split_list(void)
{
	/* must match the lists in container_engine/compat/pyxis/names.py */
	static const char *const lists[][2] = { { "--container-mounts=", "--container-mounts" },
						{ "--container-env=", "--container-env" },
						{ "--container-unshare=", "--container-unshare" } };

	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		if (is_split(lists[i][0]))
			return lists[i][1];
	}
	return NULL;
}

const char *ce_options_environment(void)
{
	return environment;
}

int ce_options_repeated(void)
{
	return repeated;
}

/* Return what this component asks for, in one text on the heap; NULL for nothing. */
static char *request(void)
{
	char *text = NULL;
	size_t size = 0;

	if (!asked && component_start == count)
		return NULL;
	FILE *stream = open_memstream(&text, &size);
	if (stream == NULL)
		return NULL;
	for (int i = component_start; i < count; i++)
		fprintf(stream, "%s%s", given[i], i + 1 < count || asked ? " " : "");
	fprintf(stream, "%s", asked ? environment : "");
	fclose(stream);
	return text;
}

int ce_options_end_component(struct ce_error *err)
{
	CE_AUTO_FREE char *mine = request();

	asked = 0;
	component_start = count;
	if (components++ == 0) {
		first_request = mine;
		mine = NULL;
		return 0;
	}
	if ((mine == NULL && first_request == NULL) ||
	    (mine != NULL && first_request != NULL && strcmp(mine, first_request) == 0))
		return 0;
	char *other = NULL;
	if (mine != NULL && first_request != NULL && asprintf(&other, "'%s'", mine) < 0)
		other = NULL;
	int failed = ce_fail_below(err, CE_HELP_COMPONENTS_DIFFER,
		       "--environment: '%s' for one component and %s for another: Slurm gives all "
		       "components of a heterogeneous job or step the same; name one for each of them, "
		       "or start separate steps",
		       first_request != NULL ? first_request : mine, other != NULL ? other : "none");
	free(other);
	return failed;
}

int ce_options_components(void)
{
	return components;
}

void ce_options_clear(void)
{
	free(environment);
	free(first_request);
	environment = first_request = NULL;
	while (count > 0)
		free(given[--count]);
	components = asked = repeated = component_start = 0;
}
