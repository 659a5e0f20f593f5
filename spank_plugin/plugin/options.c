#define _GNU_SOURCE
#include "options.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "[pyxis]" is what tools look for in the output of srun --help. The names and arguments must match
 * container_engine/compat/pyxis_names.py. */
static const struct {
	const char *name, *argument, *usage;
} pyxis[] = {
	{ "container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
	  "[pyxis] the image of the container: a reference to a registry, or the path of a SquashFS file" },
	{ "container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]",
	  "[pyxis] bind mounts inside the container; flags are separated with \"+\", e.g. \"ro+rprivate\"" },
	{ "container-workdir", "PATH", "[pyxis] working directory inside the container" },
	{ "container-name", "NAME",
	  "[pyxis] name of a container that lives with the job; later steps join or resume it. It may be "
	  "followed by \":auto\", \":create\", \":exec\" or \":no_exec\"" },
	{ "container-save", "PATH", "[pyxis] save the container to a SquashFS file at the end of the step" },
	{ "container-mount-home", NULL, "[pyxis] bind mount the user's home directory" },
	{ "no-container-mount-home", NULL, "[pyxis] do not bind mount the user's home directory" },
	{ "container-remap-root", NULL, "[pyxis] appear as root inside the container" },
	{ "no-container-remap-root", NULL, "[pyxis] do not appear as root inside the container" },
	{ "container-entrypoint", NULL, "[pyxis] run the entrypoint of the image" },
	{ "no-container-entrypoint", NULL, "[pyxis] do not run the entrypoint of the image" },
	{ "container-entrypoint-log", NULL, "[pyxis] print the output of the entrypoint" },
	{ "container-writable", NULL, "[pyxis] make the container's file system writable" },
	{ "container-readonly", NULL, "[pyxis] make the container's file system read-only" },
	{ "container-env", "NAME[,NAME...]",
	  "[pyxis] variables of the host that take precedence over those of the image" },
	{ "container-unshare", "NS[,NS...]", "[pyxis] namespaces of its own: net, ipc, uts, pid" },
};
enum { PYXIS_COUNT = sizeof pyxis / sizeof pyxis[0] };

/* Return whether the shared object at this path, which is loaded, is the plugin of this name. */
static int is_plugin(const char *path, const char *name)
{
	void *object = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	const char *own = object != NULL ? dlsym(object, "plugin_name") : NULL;
	int found = own != NULL && strcmp(own, name) == 0;

	if (object != NULL)
		dlclose(object);
	return found;
}

int ce_pyxis_is_loaded(void)
{
	void *self = dlopen(NULL, RTLD_LAZY);
	struct link_map *first = NULL;
	int found = 0;

	if (self == NULL)
		return 0;
	if (dlinfo(self, RTLD_DI_LINKMAP, &first) == 0) {
		for (struct link_map *one = first; one != NULL && !found; one = one->l_next)
			found = one->l_name[0] == '/' && is_plugin(one->l_name, "pyxis");
	}
	dlclose(self);
	return found;
}

const char *ce_pyxis_name(int index)
{
	return index < PYXIS_COUNT ? pyxis[index].name : NULL;
}

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

/* Return the option with this index as the planner takes it, --NAME or --NAME=ARGUMENT, on the heap. */
static char *pyxis_word(int index, const char *argument)
{
	char *word = NULL;
	int has_argument = pyxis[index].argument != NULL;

	return asprintf(&word, "--%s%s%s", pyxis[index].name, has_argument ? "=" : "",
			has_argument && argument != NULL ? argument : "") < 0
		       ? NULL
		       : word;
}

static int take_pyxis(int index, const char *argument, int remote)
{
	(void)remote;
	if (ce_options.count == CE_MOST_OPTIONS)
		return -1;
	ce_options.given[ce_options.count] = pyxis_word(index, argument);
	return ce_options.given[ce_options.count] != NULL ? (ce_options.count++, 0) : -1;
}

static int register_pyxis(spank_t spank)
{
	for (int i = 0; i < PYXIS_COUNT; i++) {
		/* Slurm copies the strings and does not change them */
		struct spank_option option = { (char *)pyxis[i].name,  (char *)pyxis[i].argument,
					       (char *)pyxis[i].usage, pyxis[i].argument != NULL,
					       i,		       take_pyxis };
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
			slurm_error("container_engine: cannot register --%s", pyxis[i].name);
			return SLURM_ERROR;
		}
	}
	return SLURM_SUCCESS;
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
	return with_pyxis ? register_pyxis(spank) : SLURM_SUCCESS;
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
