#define _GNU_SOURCE
#include "pyxis_options.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* "[pyxis]" is what tools look for in the output of srun --help. The names and arguments must match
 * container_engine/compat/pyxis/names.py. */
static const struct {
	const char *name, *argument, *usage;
} known[] = {
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
enum { COUNT = sizeof known / sizeof known[0] };

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

int ce_pyxis_register(spank_t spank, spank_opt_cb_f take)
{
	for (int i = 0; i < COUNT; i++) {
		/* Slurm copies the strings and does not change them */
		struct spank_option option = { (char *)known[i].name,  (char *)known[i].argument,
					       (char *)known[i].usage, known[i].argument != NULL,
					       i,		       take };
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
			slurm_error("container_engine: cannot register --%s", known[i].name);
			return SLURM_ERROR;
		}
	}
	return SLURM_SUCCESS;
}

char *ce_pyxis_word(int index, const char *argument)
{
	char *word = NULL;
	int has_argument = known[index].argument != NULL;

	return asprintf(&word, "--%s%s%s", known[index].name, has_argument ? "=" : "",
			has_argument && argument != NULL ? argument : "") < 0
		       ? NULL
		       : word;
}

const char *ce_pyxis_name(int index)
{
	return index < COUNT ? known[index].name : NULL;
}
