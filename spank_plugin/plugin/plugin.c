/*
 * The SPANK plugin: carries the plan to the nodes and lets every task join the container.
 *
 * callback         context                runs as         may do
 * ---------------  ---------------------  --------------- ---------------------------------------------------
 * init             all                    user / root     read plugstack.conf's arguments, register the
 *                                                         options
 * init             srun, salloc, sbatch   user            take back the variables that ce-host has held;
 *                                                         restore the options of the job they are started in,
 *                                                         if they are no longer in the environment; set those
 *                                                         that variables ask for (CE_ENVIRONMENT); remove the
 *                                                         job's mark from the environment; srun: make
 *                                                         ce-prolog the task prolog, where a command cannot
 *                                                         be marked
 * init_post_opt    srun, salloc, sbatch   user            run `ce plan`; srun: put the plan into the step's
 *                                                         environment; salloc, sbatch: mark the job's
 *                                                         environment, so that an srun without this plugin
 *                                                         ends
 * local_user_init  srun, but for --async  user            mark the command, so that a node without this
 *                                                         plugin cannot execute it; put ce-join before the
 *                                                         programs of --multi-prog
 * user_init        slurmstepd             root, euid user put the plan into memory files for the tasks; take
 *                                                         the mark off the command, restore the user's task
 *                                                         prolog
 * task_init        the task               user            in the first task of the node: start the launcher,
 *                                                         which is in the step like any other process of the
 *                                                         task
 * task_init        the task               user            wait for the container, join it; with a task prolog
 *                                                         or --multi-prog leave the joining to ce-join
 * task_init        the batch script       user            warn if it runs on the host and starts no step;
 *                                                         leave a note, which each srun of the job removes
 * task_init        the batch script       user            if it or its job names an environment: start the
 *                                                         holder of the job's images on this node, which ends
 *                                                         with the script
 * task_post_fork   slurmstepd             root            open a pidfd of the task; after the first one,
 *                                                         write the line of the audit, with the hash of the
 *                                                         plan
 * exit             srun                   user            remove an image made for this step only
 * task_exit        slurmstepd             root            after the last task of the node: end the session
 *                                                         cleanly, in a child that becomes the user
 * task_exit        slurmstepd, batch      root            warn if the note is still there, in a child that
 *                                                         becomes the user
 * task_exit        slurmstepd, batch      root            wait for the holder's end, in a child that becomes
 *                                                         the user
 * exit             slurmstepd             root            end the session, if no task has run
 *
 * Root never parses the plan or any other input of the user: it copies bytes into a memory file. Root never
 * receives a descriptor from the launcher or the guard, which are the user's processes: the launcher's pidfd
 * comes from the task that started it, which runs nothing of the user's yet. A step that asked for a
 * container and cannot have it fails; nothing here ever lets its command run outside. Without --environment,
 * or an option of pyxis, every callback returns at once, but for a look at the batch script.
 *
 * This file has the entry points. Their work is in plugin_step.c for slurmstepd; what runs as the user is in
 * plugin_user/, a library that slurmstepd does not load (user_part.h).
 */
#define _GNU_SOURCE
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/say.h"
#include "config.h"
#include "options.h"
#include "plugin_script.h"
#include "plugin_step.h"
#include "session_end.h"
#include "user_part.h"

SPANK_PLUGIN(container_engine, 1)

static struct ce_config config = { .error = CE_ERROR_INIT };
static struct ce_step step = CE_STEP_INIT;
/* In srun, salloc and sbatch; NULL with the error if it could not be loaded. */
static const struct ce_user_part *user_part;
static struct ce_error user_part_error = CE_ERROR_INIT;
/* The pid of slurmstepd. */
static pid_t stepd;
/* The number of times that this process has loaded the plugin: several lines of plugstack.conf that name the
 * same file share this state. */
static int loaded;

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	spank_context_t context = spank_context();

	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return SLURM_SUCCESS;
	if (loaded++ > 0)
		ce_fail(&config.error, "plugstack.conf: loads the plugin twice; one line is enough");
	else
		(void)ce_config_read(&config, argc, argv, &config.error);
	if (config.error.message != NULL && context == S_CTX_REMOTE)
		slurm_info("container_engine: %s", ce_error_text(&config.error));
	stepd = getpid();
	/* not beside pyxis: its options would be registered twice, which Slurm reports at every srun */
	int with_pyxis = !config.leaves_pyxis && !ce_pyxis_is_loaded();
	if (context != S_CTX_REMOTE)
		user_part = ce_load_user_part(&user_part_error);
	if (user_part != NULL)
		user_part->begin(&config, context, with_pyxis);
	return ce_options_register(spank, with_pyxis);
}

/* Return 0, or -1 with the error, which has no message if the planner has printed it. */
static int submit(spank_context_t context, struct ce_error *err)
{
	if (user_part != NULL)
		return user_part->submit(&config, context, err);
	*err = user_part_error;
	return -1;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	struct ce_error err = CE_ERROR_INIT;
	spank_context_t context = spank_context();

	(void)spank, (void)argc, (void)argv;
	if ((context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR) || submit(context, &err) == 0)
		return SLURM_SUCCESS;
	/* Print the reason, unless the planner has. If an error were returned, Slurm would bury it under
	 * three lines about its plugin stack. Nothing has been allocated yet, so srun, salloc or sbatch can
	 * end here. */
	if (err.message != NULL)
		ce_say_here("error", err.message, ce_error_below(&err, ""));
	exit(CE_EXIT_ENGINE);
}

int slurm_spank_local_user_init(spank_t spank, int argc, char **argv)
{
	struct ce_error err = CE_ERROR_INIT;

	(void)argc, (void)argv;
	if (user_part == NULL || user_part->mark(spank, &config, &err) == 0)
		return SLURM_SUCCESS;
	slurm_error("container_engine: %s", ce_error_text(&err));
	return SLURM_ERROR;
}

/* Return what messages call the requested container; NULL if none is requested. */
static const char *asked_for(void)
{
	return ce_options_asked() ? ce_options_shown() : NULL;
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	int prepared = ce_step_unmark(spank);

	if (spank_remote(spank) && ce_options_asked())
		ce_step_prepare(&step, spank, &config, stepd, prepared);
	else if (spank_remote(spank) && prepared)
		ce_step_refuse(&step);
	if (spank_remote(spank) && !step.session_wanted)
		ce_script_prepare(spank, asked_for());
	if (spank_remote(spank))
		ce_script_prepare_holder(spank, asked_for());
	return SLURM_SUCCESS;
}

int slurm_spank_task_post_fork(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	ce_step_audit(&step, &config);
	ce_step_guard_task(&step, spank);
	return SLURM_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	int is_script = asked_for() != NULL && ce_script_is_batch(spank);

	if (!spank_remote(spank) || !(step.session_wanted || is_script || ce_holder_life() >= 0))
		return SLURM_SUCCESS;
	const struct ce_user_part *part = ce_load_user_part(&step.start_error);
	if (part != NULL)
		part->task(&step, spank, &config, asked_for());
	else if (step.session_wanted)
		ce_step_end_task(&step, spank);
	return SLURM_SUCCESS;
}

int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	ce_step_task_exit(&step, spank);
	ce_script_end(spank, asked_for());
	ce_holder_end();
	return SLURM_SUCCESS;
}

int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	ce_step_end(&step, spank);
	if (user_part != NULL)
		user_part->end();
	user_part = NULL;
	ce_options_clear();
	ce_config_clear(&config);
	loaded = 0;
	return SLURM_SUCCESS;
}
