/*
 * The SPANK plugin: carries the plan to the nodes and lets every task join the container.
 *
 * callback              context               runs as            may do
 * --------------------  --------------------  -----------------  ------------------------------------
 * init                  all                   user / root        read plugstack.conf's arguments,
 *                                                                register the options
 * init_post_opt         srun, salloc, sbatch  user               run `ce plan`; srun: put the plan into
 *                                                                the step's environment
 * user_init             slurmstepd            root, euid user    fork a child that becomes the user for
 *                                                                good and executes the launcher
 * task_init             the task              user               wait for the container, join it; with
 *                                                                a task prolog put ce-join before the
 *                                                                command, which then joins
 * task_post_fork        slurmstepd            root               note the task's pid (a pidfd)
 * exit                  slurmstepd            root               end the session: kill the launcher by
 *                                                                its pidfd; what remains ends a child
 *                                                                that becomes the user
 *
 * Root never parses the plan or anything else of the user's: it copies bytes into a memory file. Root
 * never receives a descriptor from the launcher or the guard, which are the user's processes. A
 * step that asked for a container and cannot have it fails; nothing here ever lets its command run
 * outside. Without --environment every callback returns at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "config.h"
#include "io.h"
#include "later.h"
#include "launcher.h"
#include "moments.h"
#include "options.h"
#include "session.h"
#include "spool.h"
#include "submit.h"

SPANK_PLUGIN(container_engine, 1)

enum { DEATH_WAIT_MS = 200 };

static struct ce_config config;
static struct ce_launcher launcher = CE_LAUNCHER_INIT;

/* Why the container cannot be had, known before the tasks exist. user_init must not fail: srun 22.05
 * then ends with exit code 0. The tasks fail instead. */
static struct ce_error start_error = CE_ERROR_INIT;
static int session_wanted;

/* The process that is slurmstepd. */
static pid_t stepd;
static int is_multi_prog, has_prolog;

int slurm_spank_init(spank_t spank, int argc, char **argv);
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv);
int slurm_spank_user_init(spank_t spank, int argc, char **argv);
int slurm_spank_task_init(spank_t spank, int argc, char **argv);
int slurm_spank_task_post_fork(spank_t spank, int argc, char **argv);
int slurm_spank_exit(spank_t spank, int argc, char **argv);

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	struct ce_error err = CE_ERROR_INIT;
	spank_context_t context = spank_context();

	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return SLURM_SUCCESS;
	if (ce_config_read(&config, argc, argv, &err) < 0) {
		slurm_error("container_engine: %s", ce_error_text(&err));
		ce_error_clear(&err);
		return SLURM_ERROR;
	}
	stepd = getpid();
	return ce_options_register(spank);
}

/* ---- submit side ------------------------------------------------------------------------------- */

static int plan_and_carry(spank_context_t context, struct ce_error *err)
{
	CE_AUTO_FREE char *plan = NULL;
	int64_t begun = ce_moments_now();
	int is_srun = context == S_CTX_LOCAL;
	/* Slurm has one context for both of these */
	int is_salloc = strcmp(program_invocation_short_name, "salloc") == 0;

	if (is_srun && getenv(CE_INSIDE) != NULL && ce_options_repeated())
		return ce_fail(err,
			       "--environment=%s: this batch script runs inside it already, and srun "
			       "inherits that: leave the option out, or name another environment",
			       ce_options_environment());
	if (ce_submit_plan(&config, is_srun ? "srun" : is_salloc ? "salloc" : "sbatch",
			   ce_options_environment(), &plan, err) < 0)
		return -1;
	/* salloc and sbatch only check: each srun inside inherits the option and plans for itself, so
	 * that it sees the environment of its own time and place. Only a site that wants the batch script
	 * itself inside needs its plan. */
	if (!is_srun && (is_salloc || strstr(plan, CE_PLAN_INSIDE) == NULL))
		return 0;
	ce_carry_options();
	return ce_carry_put(plan, begun, err);
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	struct ce_error err = CE_ERROR_INIT;
	spank_context_t context = spank_context();

	(void)spank, (void)argc, (void)argv;
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
		return SLURM_SUCCESS;
	/* Slurm calls this once for each component of a heterogeneous job or step */
	int rc = ce_options_end_component(&err);
	if (rc == 0 && (ce_options_environment() == NULL || plan_and_carry(context, &err) == 0))
		return SLURM_SUCCESS;
	/* The planner has said why; with an error returned, Slurm would bury that under three lines about
	 * its plugin stack. Nothing has been allocated yet: this is the end of srun, salloc or sbatch. */
	if (err.message != NULL)
		fprintf(stderr, "ce: error: %s\n", err.message);
	exit(CE_EXIT_ENGINE);
}

/* ---- node side: slurmstepd --------------------------------------------------------------------- */

/* The interactive step of salloc and the extern step run on the host, and the batch script, unless the
 * site wants it inside: then sbatch has sent a plan. The sruns inside inherit the option. */
static int wants_session(spank_t spank)
{
	uint32_t step = SLURM_BATCH_SCRIPT;
	char **environment = NULL;

	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return 1;
	if (step == SLURM_BATCH_SCRIPT)
		return spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS &&
		       ce_variable(environment, CE_CARRY_COUNT) != NULL;
	return step != SLURM_EXTERN_CONT && step != SLURM_INTERACTIVE_STEP &&
	       step != SLURM_PENDING_STEP;
}

static void forget_carried(spank_t spank, size_t size)
{
	char name[64];

	for (size_t i = 0; i * CE_CARRY_PIECE < size; i++) {
		snprintf(name, sizeof name, CE_CARRY_PART "%zu", i);
		spank_unsetenv(spank, name);
	}
	spank_unsetenv(spank, CE_CARRY_COUNT);
	spank_unsetenv(spank, CE_CARRY_MULTI);
	spank_unsetenv(spank, CE_CARRY_PROLOG);
}

/* Slurm sets this for each task, which is later; the launcher needs it for ${SLURMD_NODENAME}. */
static void name_node(spank_t spank)
{
	uint32_t place = 0;
	char text[16];

	if (spank_get_item(spank, S_JOB_NODEID, &place) != ESPANK_SUCCESS)
		return;
	snprintf(text, sizeof text, "%u", (unsigned)place);
	spank_setenv(spank, "SLURM_NODEID", text, 1);
}

/* What of this step only slurmstepd knows: NAME=value on the heap, NULL for nothing. */
static char *find_fact(spank_t spank)
{
	uint32_t job = 0, step = 0;
	int argc = 0;
	char **argv = NULL, *fact = NULL;

	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return NULL;
	if (step == SLURM_BATCH_SCRIPT) {
		if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0 &&
		    asprintf(&fact, CE_FACT_BATCH "=%s", argv[0]) < 0)
			return NULL;
		return fact;
	}
	CE_AUTO_FREE char *pmix = ce_spool_pmix(job, step);
	if (pmix != NULL && asprintf(&fact, CE_FACT_PMIX "=%s", pmix) < 0)
		return NULL;
	return fact;
}

static int start_launcher(spank_t spank, const char *plan, uid_t uid, gid_t gid,
			  struct ce_error *err)
{
	char **environment = NULL;
	CE_AUTO_FREE char *fact = find_fact(spank);

	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		return ce_fail(err, "cannot read the job's environment");
	char *const facts[] = { fact, NULL };
	return ce_launcher_start(&launcher, &config, plan, environment, facts, uid, gid, err);
}

static int start_session(spank_t spank, struct ce_error *err)
{
	char **environment = NULL;
	uid_t uid;
	gid_t gid;

	if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		return ce_fail(err, "cannot learn whose job this is");
	CE_AUTO_FREE char *plan = ce_carry_get(environment);
	if (plan == NULL)
		return ce_fail(err, "the plan of the environment did not arrive on this node");
	is_multi_prog = ce_variable(environment, CE_CARRY_MULTI) != NULL;
	has_prolog = ce_later_is_wanted(ce_variable(environment, CE_CARRY_PROLOG) != NULL);
	forget_carried(spank, strlen(plan));
	if (plan[0] == '\0') {
		session_wanted = 0; /* image = "": on purpose no container */
		return 0;
	}
	name_node(spank);
	int rc = start_launcher(spank, plan, uid, gid, err);
	spank_unsetenv(spank, CE_CARRY_TIMES); /* was for the launcher only */
	return rc;
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	if (!spank_remote(spank) || ce_options_environment() == NULL || !wants_session(spank))
		return SLURM_SUCCESS;
	session_wanted = 1;
	/* Slurm >= 24.05 can call this in a process that shares the memory, but not the descriptors: the
	 * numbers that it would leave behind are something else's in slurmstepd. */
	if (getpid() != stepd)
		ce_fail(&start_error, "Slurm calls plugins in processes of their own (contain_spank in "
				      "slurm.conf), where a container cannot be started; ask the "
				      "administrator");
	else
		(void)start_session(spank, &start_error);
	return SLURM_SUCCESS;
}

static void report_death(const char *cause)
{
	slurm_error("container_engine: %s; the tasks of this node are killed", cause);
}

int slurm_spank_task_post_fork(spank_t spank, int argc, char **argv)
{
	pid_t pid;

	(void)argc, (void)argv;
	if (launcher.life >= 0 && spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS)
		ce_session_guard_task(&launcher, pid, report_death);
	return SLURM_SUCCESS;
}

int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
	(void)argc, (void)argv;
	if (spank_remote(spank) && launcher.life >= 0)
		ce_session_end(&launcher);
	ce_options_clear();
	ce_error_clear(&start_error);
	ce_config_clear(&config);
	session_wanted = 0;
	return SLURM_SUCCESS;
}

/* ---- node side: in the task -------------------------------------------------------------------- */

static int set_task_variable(void *context, const char *name, const char *value)
{
	spank_t spank = context;

	if (value == NULL) {
		spank_unsetenv(spank, name);
		return 0;
	}
	return spank_setenv(spank, name, value, 1) == ESPANK_SUCCESS ? 0 : -1;
}

static const char *task_variable(void *context, const char *name)
{
	spank_t spank = context;
	char **environment = NULL;

	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		return NULL;
	return ce_variable(environment, name);
}

/* With --bcast to a directory Slurm makes the name of the file up, after task_init. */
static int is_directory(const char *command)
{
	size_t length = strlen(command);

	return length > 0 && command[length - 1] == '/';
}

/* Slurm itself looks the command up later, with the same PATH; this is for the error and its code. */
static int check_command(spank_t spank, struct ce_error *err)
{
	int argc = 0;
	char **argv = NULL;

	if (is_multi_prog || spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS ||
	    argc < 1 || is_directory(argv[0]))
		return 0;
	CE_AUTO_FREE char *found = NULL;
	return ce_find_command(task_variable(spank, "PATH"), argv[0], &found, err);
}

/* Straight to the user's stderr, line by line. */
static void say(spank_t spank, const char *kind, const char *text)
{
	char node[HOST_NAME_MAX + 1] = "this node";
	const char *slurm_name = task_variable(spank, "SLURMD_NODENAME");

	if (slurm_name == NULL && gethostname(node, sizeof node) == 0)
		node[sizeof node - 1] = '\0';
	do {
		size_t length = strcspn(text, "\n");
		dprintf(STDERR_FILENO, "ce: %s: %s: %.*s\n", kind,
			slurm_name != NULL ? slurm_name : node, (int)length, text);
		text += length + (text[length] == '\n');
	} while (*text != '\0');
}

/* What all tasks of the node could say: its first one does. */
static int is_first_task(spank_t spank)
{
	int task = 0;

	return spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS || task == 0;
}

static void say_once(spank_t spank, const char *kind, const char *text)
{
	/* a launcher whose words another node of the step has said already has none */
	if (text[0] != '\0' && is_first_task(spank))
		say(spank, kind, text);
}

/* The container died under a task that was about to run in it: what that did to the task, which may
 * find no command without its image, is no news. */
static void end_if_it_died(spank_t spank, const struct ce_error *err)
{
	char cause[CE_CAUSE_SIZE];

	/* An image that is not served any more can show before the end of what served it. */
	if (err->exit_code == CE_EXIT_NOT_EXECUTABLE)
		ce_wait_readable(launcher.life, ce_now_ms() + DEATH_WAIT_MS);
	if (!ce_session_died(&launcher))
		return;
	if (!ce_session_is_told(&launcher, cause))
		say(spank, "error", cause);
	_exit(CE_EXIT_ENGINE);
}

/* Joins, or has the task join once it has run its prologs. With --multi-prog the commands are out of
 * reach and prologs run in the container. */
static int enter(spank_t spank, struct ce_container *container, struct ce_error *err)
{
	const struct ce_variables variables = { set_task_variable, task_variable, spank };
	int argc = 0;
	char **argv = NULL;

	if (has_prolog && !is_multi_prog &&
	    spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0 &&
	    !is_directory(argv[0]))
		return ce_later_arrange(container, argv, config.join, &variables, err);
	if (ce_join(container, err) < 0 ||
	    ce_apply_environment(container->environment, &variables, err) < 0)
		return -1;
	const char *missing = is_multi_prog ? ce_later_missing() : NULL;
	if (missing != NULL)
		return ce_fail(err,
			       "TaskProlog '%s': with --multi-prog it runs in the container, where it "
			       "cannot be executed: %s (ask the administrator to mount it)",
			       missing, strerror(errno));
	return check_command(spank, err);
}

static int join(spank_t spank, struct ce_error *err)
{
	struct ce_container container = CE_CONTAINER_INIT;
	int rc = -1;

	if (start_error.message != NULL)
		return ce_fail_code(err, start_error.exit_code, "%s", start_error.message);
	if (ce_session_wait(&launcher, config.start_timeout_s, &container, err) == 0)
		rc = enter(spank, &container, err);
	if (rc == 0)
		ce_moments_join(launcher.moments);
	if (container.notices != NULL && container.notices[0] != '\0')
		say_once(spank, "warning", container.notices);
	if (rc == 0 && is_first_task(spank))
		(void)ce_write_all(STDOUT_FILENO, container.said, strlen(container.said));
	ce_container_close(&container);
	/* After the join, which would clear it: a task must not outlive the slurmstepd that guards its
	 * container. */
	if (rc == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		rc = ce_fail(err, "cannot tie the task to slurmstepd: %s", strerror(errno));
	return rc;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	struct ce_error err = CE_ERROR_INIT;

	(void)argc, (void)argv;
	if (!spank_remote(spank) || !session_wanted)
		return SLURM_SUCCESS;
	/* proctrack/linuxproc signals no process that is called slurmstepd, and until execve this one
	 * is: without a name of its own a task that waits for its container would not feel scancel. */
	prctl(PR_SET_NAME, "ce-task");
	/* slurmstepd of later versions has a handler for SIGTERM, inherited here, to no effect. */
	ce_drop_handlers();
	if (join(spank, &err) == 0)
		return SLURM_SUCCESS;
	end_if_it_died(spank, &err);
	say_once(spank, "error", ce_error_text(&err));
	/* Not `return SLURM_ERROR`: Slurm would add lines of its own that hide the cause, and the exit
	 * code would be 1. This process is the task and has nothing to clean up. */
	_exit(err.exit_code);
}
