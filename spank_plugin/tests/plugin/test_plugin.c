/* The plugin's callbacks in srun, salloc and sbatch, and wherever they must do nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/inherit.h"
#include "common/io.h"
#include "fake_launcher.h"
#include "fake_spank.h"
#include "generated/help.h"
#include "harness.h"
#include "installation.h"
#include "plugin/argv_mark.h"
#include "plugin/carry.h"
#include "plugin_user/submit_options.h"

/* ---- init -------------------------------------------------------------------------------------- */

TEST("all options are registered wherever users or slurmstepd need them")
{
	static const spank_context_t contexts[] = { S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE };

	for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
		fake_reset(contexts[i]);
		CHECK_INT(init_plugin(), SLURM_SUCCESS);
		CHECK_INT(fake_job.option_count, 18);
		CHECK_TEXT(fake_job.options[0].name, "environment");
		CHECK_TEXT(fake_job.options[1].name, "edf");
		CHECK_INT(fake_job.options[0].has_arg, 1);
		CHECK_INT(slurm_spank_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
	}
}

TEST("slurmd, prologs and epilogs get nothing")
{
	char bad[] = "unknown=1", *argv[] = { bad };

	fake_reset(S_CTX_SLURMD);
	CHECK_INT(slurm_spank_init(fake_spank(), 1, argv), SLURM_SUCCESS);
	fake_job.context = S_CTX_JOB_SCRIPT;
	CHECK_INT(slurm_spank_init(fake_spank(), 1, argv), SLURM_SUCCESS);
	CHECK_INT(fake_job.option_count, 0);
}

static int init_badly(spank_context_t context)
{
	char bad[] = "prefixx=/opt", *argv[] = { bad };

	load_user_part();
	fake_reset(context);
	return slurm_spank_init(fake_spank(), 1, argv);
}

static void submit_without_option(void)
{
	CHECK_INT(init_badly(S_CTX_LOCAL), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	slurm_spank_exit(fake_spank(), 0, NULL);
}

static void submit_with_option(void)
{
	CHECK_INT(init_badly(S_CTX_LOCAL), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
}

TEST("a bad plugstack.conf is reported to users who ask for a container, and stops no other job")
{
	CHECK_INT(test_in_child(submit_without_option), 0);
	CHECK_TEXT(test_printed, "");
	CHECK_INT(WEXITSTATUS(test_in_child(submit_with_option)), 125);
	CHECK_TEXT(test_printed, "ce: error: plugstack.conf: unknown argument 'prefixx=/opt'\n"
				 CE_HELP_PLUGIN_CONFIGURATION "\n");
	CHECK_INT(init_badly(S_CTX_REMOTE), SLURM_SUCCESS);
	CHECK_TEXT(fake_job.log, "container_engine: plugstack.conf: unknown argument 'prefixx=/opt'\n");
	slurm_spank_exit(fake_spank(), 0, NULL);
}

static void submit_with_good_option(void)
{
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

static void submit_with_two_lines(void)
{
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
}

TEST("a plugin that is loaded twice is reported to users who ask for a container")
{
	install("echo plan; echo x");
	CHECK_INT(WEXITSTATUS(test_in_child(submit_with_two_lines)), 125);
	CHECK_TEXT(test_printed, "ce: error: plugstack.conf: loads the plugin twice; one line is enough\n"
				 CE_HELP_PLUGIN_CONFIGURATION "\n");
}

TEST("a Slurm that refuses an option stops the plugin")
{
	fake_reset(S_CTX_LOCAL);
	fake_job.refuse_options = 1;
	CHECK_INT(init_plugin(), SLURM_ERROR);
	CHECK_CONTAINS(fake_job.log, "cannot register --environment");
	slurm_spank_exit(fake_spank(), 0, NULL);
}

/* ---- a job without the option ------------------------------------------------------------------ */

TEST("a job without the option is untouched in every context")
{
	static const spank_context_t contexts[] = { S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE };

	install("echo called >&2; exit 1");
	for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
		fake_reset(contexts[i]);
		CHECK_INT(init_plugin(), SLURM_SUCCESS);
		/* what another srun has carried, which belongs to that one's step */
		setenv(CE_CARRY_COUNT, "1", 1);
		int fds = test_open_fds();
		CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
		CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
		CHECK_INT(slurm_spank_task_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
		CHECK_INT(slurm_spank_task_post_fork(fake_spank(), 0, NULL), SLURM_SUCCESS);
		CHECK_INT(slurm_spank_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
		CHECK_TEXT(fake_job.log, "");
		CHECK(contexts[i] == S_CTX_REMOTE || getenv(CE_CARRY_COUNT) == NULL);
		CHECK_INT(test_open_fds(), fds);
		CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
	}
	fake_reset(S_CTX_LOCAL);
}

/* ---- srun --async ------------------------------------------------------------------------------ */

static void submit_async(void)
{
	BECOME("\0--async\0--en\0x");
	submit_with_good_option();
}

static void submit_async_programs(void)
{
	BECOME("\0--async\0--multi-prog\0--en");
	submit_with_good_option();
}

TEST("srun --async is refused where srun is needed until the end")
{
	install("echo ephemeral_store=/nowhere; echo plan; echo x");
	CHECK_INT(WEXITSTATUS(test_in_child(submit_async)), 125);
	CHECK_TEXT(test_printed,
		   "ce: error: srun --async: srun ends before the step starts, and the image of "
		   "EDF_IMAGESTORE=void with it\n" CE_HELP_STEP_ASYNC "\n");
	install("echo plan; echo x");
	CHECK_INT(test_in_child(submit_async), 0);
	CHECK_TEXT(test_printed, "");
	CHECK_INT(WEXITSTATUS(test_in_child(submit_async_programs)), 125);
	CHECK_TEXT(test_printed,
		   "ce: error: srun --async: --multi-prog in a container needs an srun that waits\n"
		   CE_HELP_STEP_ASYNC "\n");
}

/* ---- steps whose commands cannot be marked (plugin_user/submit.c) -------------------------------------- */

#define TASK_PROLOG "SLURM_TASK_PROLOG"

/* Return whether, after the words of this command line, the last component with environment=demo has
 * ce-prolog as its task prolog. */
#define MARKED(words) (BECOME(words), marked_now())

static int marked_now(void)
{
	fake_reset(S_CTX_LOCAL);
	unsetenv(TASK_PROLOG);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	const char *named = getenv(TASK_PROLOG);
	int is_marked = named != NULL && strstr(named, "/libexec/container-engine/ce-prolog") != NULL;
	slurm_spank_exit(fake_spank(), 0, NULL);
	return is_marked;
}

static void try_lines(void)
{
	CHECK(MARKED("\0--en=x\0:\0x"));
	CHECK(MARKED("\0--edf\0x\0--bcast"));
	CHECK(MARKED("\0--cont=x\0--asy"));
	CHECK(MARKED("\0--en=x\0--het=0"));
	CHECK(MARKED("\0--en=x\0--pack=0"));
	CHECK(!MARKED("\0--en=x\0x\0:x"));
	CHECK(!MARKED("\0--bcast\0:\0x"));
	setenv("SLURM_BCAST", "x", 1);
	CHECK(MARKED("\0--en=x\0x"));
	unsetenv("SLURM_BCAST");
	setenv(CE_INHERITED "environment", "x", 1);
	CHECK(MARKED("\0--bcast"));
	unsetenv(CE_INHERITED "environment");
	setenv(CE_ENVIRONMENT, "x", 1);
	CHECK(MARKED("\0--bcast"));
	fake_reset(S_CTX_ALLOCATOR);
	unsetenv(TASK_PROLOG);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK(getenv(TASK_PROLOG) == NULL);
}

TEST("srun makes the check a task prolog where a command cannot be marked")
{
	int status = test_in_child(try_lines);
	CHECK_TEXT(test_printed, "");
	CHECK_INT(status, 0);
}

static void keep_own(void)
{
	BECOME("\0--en\0x\0--bcast");
	setenv(TASK_PROLOG, "/mine", 1);
	submit_with_good_option();
	CHECK_TEXT(getenv(CE_CARRY_USER_PROLOG), "/mine");
	CHECK(getenv(CE_CARRY_PROLOG) != NULL);
	/* an srun in a task of that step, on a host without the plugin, has passed it on */
	slurm_spank_exit(fake_spank(), 0, NULL);
	submit_with_good_option();
	CHECK(getenv(CE_CARRY_USER_PROLOG) == NULL);
}

TEST("the user's own task prolog runs after the check")
{
	install("echo plan; echo x");
	CHECK_INT(test_in_child(keep_own), 0);
}

static void replace_check(void)
{
	BECOME("\0--bc\0--task-p\0--en");
	submit_with_good_option();
}

static void replace_check_of_a_variable(void)
{
	setenv("SLURM_BCAST", "x", 1);
	BECOME("\0--task-p\0--en");
	submit_with_good_option();
}

static void replace_check_later(void)
{
	BECOME("\0--en\0x\0:\0--task-p");
	submit_with_good_option();
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

static void pass_an_argument(void)
{
	BECOME("\0--en=x\0x\0--bc\0--task-p");
	submit_with_good_option();
}

TEST("a task prolog that would replace the check is refused, not an argument that looks so")
{
	install("echo plan; echo x");
	CHECK_INT(WEXITSTATUS(test_in_child(replace_check)), 125);
	CHECK_CONTAINS(test_printed, "ce: error: --task-prolog: with --bcast, --async or several components");
	CHECK_INT(WEXITSTATUS(test_in_child(replace_check_of_a_variable)), 125);
	CHECK_CONTAINS(test_printed, "ce: error: --task-prolog: with --bcast, --async or several components");
	CHECK_INT(WEXITSTATUS(test_in_child(replace_check_later)), 125);
	CHECK_CONTAINS(test_printed, "ce: error: --task-prolog: with --bcast, --async or several components");
	CHECK_INT(test_in_child(pass_an_argument), 0);
}

static void name_a_bundle(void)
{
	CHECK_INT(chdir(test_directory()), 0);
	test_file(test_directory(), "x.toml", "image = \"i\"\n", 0644);
	BECOME("\0--container=./x.toml\0x");
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

TEST("srun whose option for bundles names an environment ends before anything runs")
{
	install("echo plan; echo x");
	CHECK_INT(WEXITSTATUS(test_in_child(name_a_bundle)), 125);
	CHECK_CONTAINS(test_printed, "ce: error: ");
	CHECK_CONTAINS(test_printed, "./x.toml");
}

static void miss_components(void)
{
	BECOME("\0--en\0x\0x");
	submit_with_good_option();
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

TEST("a step of components that the command line did not show is refused")
{
	install("echo plan; echo x");
	CHECK_INT(WEXITSTATUS(test_in_child(miss_components)), 125);
	CHECK_CONTAINS(test_printed, "ce: error: srun's options were not recognized");
}

/* ---- options ----------------------------------------------------------------------------------- */

TEST("an empty name is for the planner to refuse")
{
	install("printf 'plan\\n<%s>' \"$4\"");
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(fake_give_option("edf", ""), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_TEXT(getenv(CE_CARRY_PART "0"), "plan\n<>");
	slurm_spank_exit(fake_spank(), 0, NULL);
}

TEST("the option given last is used, whichever of the two it is")
{
	install("printf 'plan\\n%s' \"$4\"");
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "inherited from sbatch"), 0);
	CHECK_INT(fake_give_option("edf", "mine"), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_TEXT(getenv(CE_CARRY_PART "0"), "plan\nmine");
	slurm_spank_exit(fake_spank(), 0, NULL);
}

/* ---- submit ------------------------------------------------------------------------------------ */

static void submit_in(spank_context_t context)
{
	fake_reset(context);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	slurm_spank_exit(fake_spank(), 0, NULL);
}

TEST("srun puts the plan into its environment, the planner knows it is srun")
{
	install("echo plan; printf '%s ' \"$@\"");
	submit_in(S_CTX_LOCAL);
	CHECK_TEXT(getenv(CE_CARRY_COUNT), "1");
	CHECK_TEXT(getenv(CE_CARRY_PART "0"), "plan\n--for srun -- demo ");
}

TEST("sbatch and salloc plan to find errors and carry nothing")
{
	install("printf '%s ' \"$@\" > \"${0%/*}/seen\"; echo plan; echo x");
	submit_in(S_CTX_ALLOCATOR);
	CHECK(getenv(CE_CARRY_COUNT) == NULL);
	CHECK_INT(access(test_path(test_directory(), "libexec/container-engine/seen"), F_OK), 0);
}

TEST("sbatch carries a plan of a site that wants the batch script inside")
{
	install("printf 'batch_script=inside\\nplan\\n{}'");
	submit_in(S_CTX_ALLOCATOR);
	CHECK_TEXT(getenv(CE_CARRY_COUNT), "1");
	CHECK_TEXT(getenv(CE_CARRY_PART "0"), "plan\n{}");
}

TEST("what a user writes into an environment file is not taken for the site's word")
{
	install("printf 'plan\\n{}\\nbatch_script=inside\\n'");
	submit_in(S_CTX_ALLOCATOR);
	CHECK(getenv(CE_CARRY_COUNT) == NULL);
}

TEST("that there is to be no container is carried as a keyword by srun, not by sbatch")
{
	install("echo host");
	submit_in(S_CTX_LOCAL);
	CHECK_TEXT(getenv(CE_CARRY_PART "0"), CE_WORD_HOST);
	submit_in(S_CTX_ALLOCATOR);
	CHECK(getenv(CE_CARRY_COUNT) == NULL);
}

static void submit_local(void)
{
	submit_in(S_CTX_LOCAL);
}

static void submit_allocator(void)
{
	submit_in(S_CTX_ALLOCATOR);
}

static void ends_submit(test_fn *submit, const char *wanted)
{
	int status = test_in_child(submit);

	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 125);
	CHECK_TEXT(test_printed, wanted);
}

static const char *again;

static void submit_inside(void)
{
	setenv(CE_INSIDE, "1", 1);
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	if (again != NULL)
		CHECK_INT(fake_give_option("environment", again), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	slurm_spank_exit(fake_spank(), 0, NULL);
	_exit(0);
}

TEST("an srun that asks for the environment its batch script runs in is refused with the reason")
{
	install("echo plan; echo x");
	again = "demo";
	ends_submit(submit_inside,
		    "ce: error: --environment=demo: this batch script runs inside it already, and srun "
		    "inherits that\n" CE_HELP_ENVIRONMENT_TWICE "\n");
}

TEST("an srun that inherits the environment of its batch script, or names another, starts")
{
	static const char *const values[] = { NULL, "other" };

	install("echo plan; echo x");
	for (size_t i = 0; i < 2; i++) {
		again = values[i];
		CHECK_INT(test_in_child(submit_inside), 0);
		CHECK_TEXT(test_printed, "");
	}
}

/* ---- a node that does not load the plugin ------------------------------------------------------ */

/* the command as srun sends it, and as a node with the plugin runs it; on the heap */
static char *sent, *run;

static void send_command(void)
{
	char *argv[] = { strdup("hostname"), strdup("-s"), NULL };
	CE_AUTO_FREE char *command = argv[0];

	fake_reset(S_CTX_LOCAL);
	fake_job.argc = 2;
	fake_job.argv = argv;
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	/* Slurm calls this again if it launches the step again */
	for (int i = 0; i < 2; i++)
		CHECK_INT(slurm_spank_local_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	slurm_spank_exit(fake_spank(), 0, NULL);
	sent = strdup(argv[0]);
	fake_job.context = S_CTX_REMOTE;
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
	run = strdup(argv[0]);
	if (argv[0] != command)
		free(argv[0]);
	free(argv[1]);
	fake_reset(S_CTX_LOCAL);
}

TEST("a command for a container cannot be executed where the mark is not removed")
{
	install("echo plan; echo x");
	send_command();
	CHECK_CONTAINS(sent, "/\nce: error: this node's Slurm does not load the plugin of --environment; "
			     "nothing was started\n" CE_HELP_PLUGIN_CONFIGURATION "\n/hostname");
	CHECK_INT(access(sent, F_OK), -1);
	CHECK_INT(errno, ENOENT);
	CHECK_TEXT(run, "hostname");
	free(sent), free(run);
}

TEST("a command for the host has no mark")
{
	install("echo host");
	send_command();
	CHECK_TEXT(sent, "hostname");
	free(sent), free(run);
}

/* ---- an srun that does not load the plugin ----------------------------------------------------- */

static void submit_marked(spank_context_t context, const char *option)
{
	fake_reset(context);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	if (option != NULL)
		CHECK_INT(fake_give_option("environment", option), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	slurm_spank_exit(fake_spank(), 0, NULL);
}

TEST("sbatch and salloc mark a job with an environment, so that an srun without the plugin ends")
{
	install("echo plan; echo x");
	submit_marked(S_CTX_ALLOCATOR, "demo");
	CHECK_CONTAINS(getenv(CE_JOB_MARK), "does not load the plugin of --environment");
	CHECK(strchr(getenv(CE_JOB_MARK), '\n') == NULL);
	CHECK(getenv(CE_JOB_MARKED) == NULL);
	/* once more for the next component, and for a job that is submitted from the job */
	submit_marked(S_CTX_ALLOCATOR, "demo");
	CHECK(getenv(CE_JOB_MARKED) == NULL);
	submit_marked(S_CTX_LOCAL, "demo");
	CHECK(getenv(CE_JOB_MARK) == NULL);
}

TEST("a job without an environment has no mark, also within one that has")
{
	install("echo plan; echo x");
	submit_marked(S_CTX_ALLOCATOR, NULL);
	CHECK(getenv(CE_JOB_MARK) == NULL);
	submit_marked(S_CTX_ALLOCATOR, "demo");
	submit_marked(S_CTX_ALLOCATOR, NULL);
	CHECK(getenv(CE_JOB_MARK) == NULL);
}

TEST("a user who has a variable of this name gets it back")
{
	install("echo plan; echo x");
	setenv(CE_JOB_MARK, "2", 1);
	submit_marked(S_CTX_LOCAL, NULL);
	CHECK_TEXT(getenv(CE_JOB_MARK), "2");
	submit_marked(S_CTX_ALLOCATOR, "demo");
	CHECK_CONTAINS(getenv(CE_JOB_MARK), "does not load the plugin");
	submit_marked(S_CTX_LOCAL, NULL);
	CHECK_TEXT(getenv(CE_JOB_MARK), "2");
	CHECK(getenv(CE_JOB_MARKED) == NULL);
}

TEST("an environment that is refused marks no job")
{
	install("exit 1");
	CHECK_INT(WEXITSTATUS(test_in_child(submit_allocator)), 125);
	CHECK(getenv(CE_JOB_MARK) == NULL);
}

/* ---- components of a heterogeneous step -------------------------------------------------------- */

static const char *components[2]; /* what each of them gives, NULL for nothing */

static void submit_components(void)
{
	BECOME("\0--en\0x\0:");
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	for (size_t i = 0; i < 2; i++) {
		if (components[i] != NULL)
			CHECK_INT(fake_give_option("environment", components[i]), 0);
		CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	}
	slurm_spank_exit(fake_spank(), 0, NULL);
}

TEST("components of a heterogeneous step may name the same environment, or none")
{
	install("echo plan; echo x");
	components[0] = components[1] = "a";
	CHECK_INT(test_in_child(submit_components), 0);
	components[0] = components[1] = NULL;
	CHECK_INT(test_in_child(submit_components), 0);
}

TEST("components of a heterogeneous step that name two environments are refused")
{
	install("echo plan; echo x");
	components[0] = "a", components[1] = "b";
	ends_submit(submit_components,
		    "ce: error: --environment: 'a' for one component and 'b' for another: Slurm gives "
		    "all components of a heterogeneous job or step the same; name one for each of "
		    "them, or start separate steps\n" CE_HELP_COMPONENTS_DIFFER "\n");
}

TEST("a component without an environment beside one that has one is refused")
{
	install("echo plan; echo x");
	components[0] = "a", components[1] = NULL;
	int status = test_in_child(submit_components);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 125);
	components[0] = NULL, components[1] = "b";
	status = test_in_child(submit_components);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 125);
	CHECK_CONTAINS(test_printed, "'b' for one component and none for another");
}

TEST("what the planner refuses ends srun, salloc and sbatch with 125 and only the planner's message")
{
	install("echo 'ce: error: demo.toml:3: no' >&2; exit 1");
	ends_submit(submit_local, "ce: error: demo.toml:3: no\n");
	ends_submit(submit_allocator, "ce: error: demo.toml:3: no\n");
	CHECK(getenv(CE_CARRY_COUNT) == NULL);
}

TEST("a planner that prints nothing ends srun, salloc and sbatch")
{
	install("exit 0");
	CHECK_INT(WEXITSTATUS(test_in_child(submit_local)), 125);
	CHECK_CONTAINS(test_printed,
		       "printed no plan, and not that the step needs none; nothing was started\n");
	CHECK_CONTAINS(test_printed, "ce: see: ce help planner-mute\n");
	CHECK_INT(WEXITSTATUS(test_in_child(submit_allocator)), 125);
}

TEST("a planner that was killed ends srun with one line")
{
	install("kill -9 $$");
	ends_submit(submit_local, "ce: error: the planner was killed; nothing was started\n"
				  CE_HELP_PLANNER_KILLED "\n");
}
