#define _GNU_SOURCE
#include "submit.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <slurm/slurm_version.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/held.h"
#include "common/inherit.h"
#include "common/io.h"
#include "generated/help.h"
#include "multi_prog.h"
#include "planner.h"
#include "plugin/argv_mark.h"
#include "plugin/carry.h"
#include "plugin/options.h"
#include "plugin/plugin_script.h"
#include "srun_options.h"
#include "submit_checks.h"
#include "submit_options.h"

/* In srun: the image store that was made for this step alone, NULL for none. */
static char *ephemeral_store;

/* In srun: whether the step runs in containers. */
static int carried;

/* Why it is not known what this command inherits (errno); 0 if it is. */
static int unknown;

/* ---- the task prolog as a mark ----------------------------------------------------------------- */

/* For steps whose commands cannot be marked (plugin/argv_mark.h): srun calls the plugin for only one
 * component of a heterogeneous step, with --async for none, and with --bcast it replaces the command
 * afterwards. There srun makes ce-prolog (programs/prolog.c) the task prolog of each component of the step:
 * Slurm runs it before each task, and it refuses tasks on a node that has not loaded the plugin. */

/* Return whether the step might ask for a container. Slurm has not parsed the command line yet. */
static int may_ask(void)
{
	const char *option;

	return ce_options_asked() || ce_inherited(&option) != NULL || ce_srun_may_ask();
}

/* Make `prolog`, the path of ce-prolog, the task prolog, if the command line may need it and asks for a
 * container; ce-prolog then runs the user's own. In srun, before Slurm reads the variables. */
static void mark_prolog(const char *prolog)
{
	const char *own = getenv(CE_TASK_PROLOG);

	unsetenv(CE_CARRY_USER_PROLOG);
	if (!ce_srun_may_hide_command() || !may_ask())
		return;
	if (own != NULL && strcmp(own, prolog) != 0)
		(void)setenv(CE_CARRY_USER_PROLOG, own, 1);
	(void)setenv(CE_TASK_PROLOG, prolog, 1);
}

/* Return -1 with the error if the step needs that mark and does not have it, else 0. In srun, after the
 * options of each component. */
static int check_prolog(const char *prolog, struct ce_error *err)
{
	const char *named = getenv(CE_TASK_PROLOG);

	if (ce_options_components() == 1 && !ce_srun_hides_command())
		return 0;
	if (ce_srun_has_prolog())
		return ce_fail_below(err, CE_HELP_TASK_PROLOG,
				     "--task-prolog: with --bcast, --async or several components, srun needs "
				     "it to keep the command from nodes that do not load the plugin");
	if (named == NULL || strcmp(named, prolog) != 0)
		return ce_fail(err, "srun's options were not recognized, and the command could run on the "
				    "host of a node that does not load the plugin: write them in full");
	return 0;
}

/* ---- planning ---------------------------------------------------------------------------------- */

void ce_submit_begin(const struct ce_config *config, spank_context_t context, int with_pyxis)
{
	if (ce_take_back() < 0)
		unknown = ENOMEM;
	ce_unmark_job();
	/* as root, don't take options from the environment of the user who called the command (sudo) */
	int inherits = ce_inherit(getuid() != 0);
	if (inherits < 0)
		unknown = errno;
	else if (inherits > 0)
		ce_options_from_variables(with_pyxis);
	if (context == S_CTX_LOCAL && config->prolog != NULL)
		mark_prolog(config->prolog);
}

/* Print where they run, once for all components of a job, unless Slurm has been asked to be quiet. */
static void announce(int is_salloc, const char *environment)
{
	static int announced;

	if (announced++ > 0)
		return;
	slurm_info("the %s runs on the host; each srun in it runs in '%s'",
		   is_salloc ? "shell" : "batch script", environment);
}

static int carry(struct ce_planned *planned, int is_srun, int is_salloc, int64_t begun, struct ce_error *err)
{
	int has_plan = strcmp(planned->text, CE_WORD_HOST) != 0;

	if (!is_srun && (ce_mark_job(err) < 0 || (!has_plan && setenv(CE_SCRIPT_ON_HOST, "1", 1) < 0)))
		return -1;
	/* salloc and sbatch only check the environment: each srun inside inherits the option and plans for
	 * itself, so that it uses the environment variables of its own time and place. A plan is needed only
	 * if the site runs the batch script itself in the container. */
	if (!is_srun && (is_salloc || !planned->script_inside)) {
		if (has_plan)
			announce(is_salloc, ce_options_shown());
		return 0;
	}
	free(ephemeral_store); /* of an earlier component; ce-reaper removes the directory */
	ephemeral_store = is_srun ? planned->ephemeral_store : NULL;
	if (is_srun)
		planned->ephemeral_store = NULL;
	carried = is_srun && has_plan;
	if (!has_plan)
		ce_submit_leave_container(0); /* image = "": on the host, as the user wants */
	if (planned->image != NULL)
		(void)setenv(CE_CARRY_IMAGE, planned->image, 1);
	if (planned->job_container != NULL)
		(void)setenv(CE_CARRY_JOB_CONTAINER, planned->job_container, 1);
	ce_srun_note_options();
	return ce_carry_put(planned->text, begun, err);
}

/* The job has used its environment, so its batch script need not be warned (plugin/plugin_script.h). */
static void remove_note(void)
{
	const char *job = getenv("SLURM_JOB_ID"), *option;
	char path[PATH_MAX];

	if (job == NULL || ce_inherited(&option) == NULL)
		return;
	ce_note_path(getuid(), (uint32_t)strtoul(job, NULL, 10), path);
	(void)ce_note_take(path);
}

/* With --async (Slurm 26.05) srun ends when the step has been accepted, and never calls local_user_init. */
static int check_async(const struct ce_planned *planned, struct ce_error *err)
{
	if (strcmp(planned->text, CE_WORD_HOST) == 0 || !ce_srun_has_option("--async"))
		return 0;
	if (planned->ephemeral_store != NULL)
		return ce_fail_below(err, CE_HELP_STEP_ASYNC,
				     "srun --async: srun ends before the step starts, and the image of "
				     "EDF_IMAGESTORE=void with it");
	if (ce_srun_has_option("--multi-prog"))
		return ce_fail_below(err, CE_HELP_STEP_ASYNC,
				     "srun --async: --multi-prog in a container needs an srun that waits");
	return 0;
}

static int plan_and_carry(const struct ce_config *config, spank_context_t context,
			  struct ce_error *err)
{
	struct ce_planned planned;
	int64_t begun = ce_now_ns();
	int is_srun = context == S_CTX_LOCAL;
	/* Slurm uses one context for salloc and sbatch */
	int is_salloc = strcmp(program_invocation_short_name, "salloc") == 0;

	if (config->error.message != NULL)
		return ce_fail_below(err, CE_HELP_PLUGIN_CONFIGURATION, "%s", config->error.message);
	if (!is_srun && ce_options_split_list() != NULL)
		return ce_fail_below(err, CE_HELP_CONTAINER_OPTION,
				     "%s: given twice, but Slurm hands only the last one to the "
				     "steps of a job: join them with a comma",
				     ce_options_split_list());
	if (ce_pyxis_is_loaded() && ce_pyxis_check_alone(err) < 0)
		return -1;
	if (is_srun && getenv(CE_INSIDE) != NULL && ce_options.repeated)
		return ce_fail_below(err, CE_HELP_ENVIRONMENT_TWICE,
			       "--environment=%s: this batch script runs inside it already, and srun "
			       "inherits that",
			       ce_options.environment);
	if (ce_planner_run(config, is_srun ? "srun" : is_salloc ? "salloc" : "sbatch",
			   ce_options_words(), &planned, err) < 0)
		return -1;
	if (is_srun)
		remove_note();
	int rc = is_srun ? check_async(&planned, err) : 0;
	if (rc == 0 && is_srun && strcmp(planned.text, CE_WORD_HOST) != 0)
		rc = check_prolog(config->prolog, err);
	if (rc == 0)
		rc = carry(&planned, is_srun, is_salloc, begun, err);
	ce_planned_clear(&planned);
	return rc;
}

/* Return whether salloc has started this srun; salloc has then printed where its shell runs. */
static int is_of_salloc(void)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
	CE_AUTO_FREE char *name = ce_read_path(AT_FDCWD, path, 0, 64, NULL);
	return name != NULL && strcmp(name, "salloc\n") == 0;
}

/* Print why a command has no container, if its job has one or its user may have meant one. */
static void say_without(int is_step)
{
	const char *where = is_step ? "this step runs on the host" : "the new job's steps run on the host";
	const char *left = ce_not_inherited();

	if (left != NULL)
		slurm_info("CE_INHERIT=no: %s, not in '%s', which the job has", where, left);
	ce_submit_leave_container(left == NULL && is_step);
}

int ce_submit(const struct ce_config *config, spank_context_t context, struct ce_error *err)
{
	const char *option = NULL;

	ce_carry_forget();
	if (unknown != 0)
		return ce_fail_below(err, ce_start_help(unknown),
				     "cannot find out whether the job has an environment: %s",
				     strerror(unknown));
	if (ce_submit_check_line(err) < 0)
		return -1;
	/* Slurm calls this once for each component of a heterogeneous job or step */
	if (ce_options_end_component(err) < 0)
		return -1;
	if (context == S_CTX_LOCAL && ce_options_asked() && ce_srun_is_for_shell()) {
		if (!is_of_salloc())
			slurm_info("the interactive step runs on the host; each srun in it runs in '%s'",
				   ce_options_shown());
		ce_submit_leave_container(0);
		return 0;
	}
	if (ce_options_asked())
		return plan_and_carry(config, context, err);
	const char *value = ce_inherited(&option);
	if (value != NULL)
		return ce_fail_below(err, CE_HELP_ENVIRONMENT_NOT_INHERITED,
				     "%s=%s: the job has this option, but Slurm does not pass it to this "
				     "command",
				     option, value);
	say_without(context == S_CTX_LOCAL);
	return 0;
}

/* Return whether srun needs argv[0] unchanged. With --bcast, Slurm since 23.02.4 reads it later, and frees
 * it; all releases of 23.02 are taken for such. */
static int needs_argv_unchanged(void)
{
	return SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0) && ce_srun_broadcasts();
}

int ce_submit_mark(spank_t spank, const struct ce_config *config, struct ce_error *err)
{
	int argc = 0;
	char **argv = NULL;

	if (!carried || spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1)
		return 0;
	if (ce_srun_is_multi_prog(argc, argv))
		return ce_multi_prog_prefix(&argv[1], config->join, err);
	return needs_argv_unchanged() ? 0 : ce_mark_argv(argv, err);
}

void ce_submit_end(void)
{
	carried = 0;
	if (ephemeral_store != NULL)
		ce_remove_ephemeral_store(ephemeral_store);
	free(ephemeral_store);
	ephemeral_store = NULL;
	unknown = 0;
	ce_options_forget_components();
	ce_forget_path();
}
