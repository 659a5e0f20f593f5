#define _GNU_SOURCE
#include "submit_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/inherit.h"
#include "common/io.h"
#include "generated/help.h"
#include "plugin/options.h"

/* the planner's option for taking variables of pyxis into account (compat/pyxis_names.py) */
#define VARIABLES_COUNT "--container-variables"

#define VARIABLES_BEGIN "PYXIS_CONTAINER_"

/* The words made of the options, as the planner takes them. */
static const char *words[CE_MOST_OPTIONS + 4];

/* For a heterogeneous job or step: what its first component asked for (NULL: nothing), how many components
 * there have been, and the index of the first option of pyxis of the one whose options are being read. */
static char *first_request;
static int components, component_start;

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

/* Return whether a variable of pyxis has a value. */
static int has_pyxis_variables(void)
{
	for (char **entry = environ; *entry != NULL; entry++) {
		if (strncmp(*entry, VARIABLES_BEGIN, strlen(VARIABLES_BEGIN)) == 0)
			return 1;
	}
	return 0;
}

const char *const *ce_options_words(void)
{
	int used = 0;

	if (ce_options.with_pyxis && has_pyxis_variables())
		words[used++] = VARIABLES_COUNT;
	for (int i = 0; i < ce_options.count; i++)
		words[used++] = ce_options.given[i];
	words[used++] = "--";
	words[used++] = ce_options.environment;
	words[used] = NULL;
	return words;
}

/* Return whether an option that begins like this was given with two values. */
static int is_split(const char *option)
{
	const char *seen = NULL;

	for (int i = 0; i < ce_options.count; i++) {
		if (strncmp(ce_options.given[i], option, strlen(option)) != 0)
			continue;
		if (seen != NULL && strcmp(seen, ce_options.given[i]) != 0)
			return 1;
		seen = ce_options.given[i];
	}
	return 0;
}

const char *ce_options_split_list(void)
{
	/* must match the lists in container_engine/compat/pyxis_names.py */
	static const char *const lists[][2] = { { "--container-mounts=", "--container-mounts" },
						{ "--container-env=", "--container-env" },
						{ "--container-unshare=", "--container-unshare" } };

	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		if (is_split(lists[i][0]))
			return lists[i][1];
	}
	return NULL;
}

/* Return what this component asks for, in one text on the heap; NULL for nothing. */
static char *request(void)
{
	char *text = NULL;
	size_t size = 0;

	if (!ce_options.asked && component_start == ce_options.count)
		return NULL;
	FILE *stream = open_memstream(&text, &size);
	if (stream == NULL)
		return NULL;
	for (int i = component_start; i < ce_options.count; i++)
		fprintf(stream, "%s%s", ce_options.given[i],
			i + 1 < ce_options.count || ce_options.asked ? " " : "");
	fprintf(stream, "%s", ce_options.asked ? ce_options.environment : "");
	fclose(stream);
	return text;
}

int ce_options_end_component(struct ce_error *err)
{
	CE_AUTO_FREE char *mine = request();

	ce_options.asked = 0;
	component_start = ce_options.count;
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

void ce_options_forget_components(void)
{
	free(first_request);
	first_request = NULL;
	components = component_start = 0;
}

/* ---- beside pyxis ------------------------------------------------------------------------------ */

#define OPTION "_SLURM_SPANK_OPTION_pyxis_"

int ce_pyxis_is_option(const char *word)
{
	const char *name;

	for (int i = 0; strncmp(word, "--", 2) == 0 && (name = ce_pyxis_name(i)) != NULL; i++) {
		size_t size = strlen(name);
		if (strncmp(word + 2, name, size) == 0 &&
		    (word[2 + size] == '\0' || word[2 + size] == '='))
			return 1;
	}
	return 0;
}

static int refuse(const char *what, struct ce_error *err)
{
	return ce_fail_below(err, CE_HELP_PYXIS_TOO,
			     "%s asks pyxis for a container, and --environment or CE_ENVIRONMENT asks "
			     "another plugin: a step has only one",
			     what);
}

/* Return whether this command or its job has this option of pyxis, on the command line or in the lines of a
 * batch script. For each option, Slurm sets one variable for prologs, and another for the steps of a job. */
static int is_given(const char *option)
{
	static const char *const prefixes[] = { OPTION, "SLURM_SPANK_" OPTION };
	char name[96];

	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
		snprintf(name, sizeof name, "%s%s", prefixes[i], option);
		for (char *at = name; *at != '\0'; at++)
			*at = *at == '-' ? '_' : *at;
		if (getenv(name) != NULL)
			return 1;
	}
	return 0;
}

/* Refuse the other options of pyxis: it ignores them where it makes no container, so the step would lack what
 * they ask for. Its variables may be set for everybody, and pyxis reports that it ignores them. */
static int check_others(struct ce_error *err)
{
	const char *name;

	for (int i = 0; (name = ce_pyxis_name(i)) != NULL; i++) {
		if (is_given(name))
			return ce_fail_below(err, CE_HELP_PYXIS_TOO,
					     "--%s is an option of pyxis here, which has no effect on the "
					     "container of --environment or CE_ENVIRONMENT",
					     name);
	}
	return 0;
}

int ce_pyxis_check_alone(struct ce_error *err)
{
	static const char *const asking[] = { "--container-image", "--container-name" };
	static const char *const names[] = { CE_PYXIS_IMAGE, CE_PYXIS_NAME };

	for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
		const char *value = getenv(names[i]);
		if (value != NULL && *value != '\0')
			return refuse(names[i], err);
		if (is_given(asking[i] + 2))
			return refuse(asking[i], err);
	}
	return check_others(err);
}
