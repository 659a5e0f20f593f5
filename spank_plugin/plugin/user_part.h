/*
 * The part of the plugin that only a user's processes need: srun, salloc, sbatch and the tasks. It is a
 * library beside the plugin, container_engine_user.so, which they load; slurmstepd, which is root, does not.
 * The library needs the plugin in turn, for all that both parts use.
 */
#pragma once

#include <slurm/spank.h>

#include "config.h"
#include "plugin_step.h"

/* The functions are explained in plugin_user/submit.h and plugin_user/task.h. */
struct ce_user_part {
	const char *version; /* of the engine; first in every version */
	void (*begin)(const struct ce_config *config, spank_context_t context, int with_pyxis);
	int (*submit)(const struct ce_config *config, spank_context_t context, struct ce_error *err);
	int (*mark)(spank_t spank, const struct ce_config *config, struct ce_error *err);
	void (*end)(void);
	void (*task)(struct ce_step *step, spank_t spank, const struct ce_config *config,
		     const char *environment);
};

/* Load the library, once. Return NULL with the error if it is missing, or is not of this version: then nobody
 * knows what a command asks for, so it must not go on. As the user. */
const struct ce_user_part *ce_load_user_part(struct ce_error *err);

/* The same, for the library at this path. */
const struct ce_user_part *ce_load_user_part_from(const char *path, struct ce_error *err);
