#define _GNU_SOURCE
#include "user_part.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "generated/help.h"

static const struct ce_user_part *loaded;

static const struct ce_user_part *fail(struct ce_error *err, const char *what, const char *why)
{
	(void)ce_fail_below(err, CE_HELP_PLUGIN_CONFIGURATION, "cannot load a part of the plugin: %s%s", what,
			    why);
	return NULL;
}

const struct ce_user_part *ce_load_user_part_from(const char *path, struct ce_error *err)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const struct ce_user_part *part = library != NULL ? dlsym(library, "ce_user_part") : NULL;

	if (library == NULL)
		return fail(err, dlerror(), "");
	if (part == NULL || strcmp(part->version, CE_VERSION) != 0)
		return fail(err, path, ": not of version " CE_VERSION ", as the plugin is");
	return loaded = part;
}

const struct ce_user_part *ce_load_user_part(struct ce_error *err)
{
	static const char name[] = "container_engine_user.so";
	char path[PATH_MAX + sizeof name];
	Dl_info own;

	if (loaded != NULL)
		return loaded;
	/* beside the plugin's file, to which plugstack.conf may name a link */
	if (dladdr(name, &own) == 0 || realpath(own.dli_fname, path) == NULL)
		return fail(err, name, ": not found, as the plugin's own file is not");
	strcpy(strrchr(path, '/') + 1, name);
	return ce_load_user_part_from(path, err);
}
