#define _GNU_SOURCE
#include "plugin_step.h"

#include <link.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "argv_mark.h"
#include "carry.h"
#include "common/io.h"
#include "common/say.h"
#include "generated/help.h"
#include "session.h"
#include "session_end.h"
#include "slurmd_spool.h"

char **ce_step_environment(spank_t spank)
{
	char **environment = NULL;

	return spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS ? environment : NULL;
}

int ce_step_is_first_task(spank_t spank)
{
	int task = 0;

	return spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS || task == 0;
}

/* Return whether this step runs in a container. The extern step runs on the host. The interactive step of
 * salloc and the batch script do so, too, unless a plan has been sent: srun sends one for an interactive step
 * if its own options ask for it, sbatch if the site wants the script inside. Each srun in one of them
 * inherits the option. */
static int wants_session(spank_t spank, int is_prepared)
{
	uint32_t step = SLURM_BATCH_SCRIPT;

	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return 1;
	if (step == SLURM_INTERACTIVE_STEP)
		return is_prepared;
	if (step == SLURM_BATCH_SCRIPT)
		return ce_variable(ce_step_environment(spank), CE_CARRY_COUNT) != NULL;
	return step != SLURM_EXTERN_CONT && step != SLURM_PENDING_STEP;
}

static void forget_carried(spank_t spank, size_t size)
{
	char name[64];

	for (size_t i = 0; i * CE_CARRY_PIECE < size; i++) {
		snprintf(name, sizeof name, CE_CARRY_PART "%zu", i);
		spank_unsetenv(spank, name);
	}
	spank_unsetenv(spank, CE_CARRY_COUNT);
	spank_unsetenv(spank, CE_CARRY_PROLOG);
	spank_unsetenv(spank, CE_CARRY_CHDIR);
}

/* Remove the facts that come with a plan for the launcher, which no task must see. */
static void forget_facts(spank_t spank)
{
	static const char *const names[] = { CE_CARRY_TIMES, CE_CARRY_IMAGE, CE_CARRY_JOB_CONTAINER,
					     CE_CARRY_MPI };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		spank_unsetenv(spank, names[i]);
}

/* Set SLURM_NODEID, which the launcher needs for ${SLURMD_NODENAME}: Slurm sets it for each task only
 * later. Slurm's item counts the nodes of a component, and SLURM_STEP_NODELIST has those of all. */
static void name_node(spank_t spank, char **environment)
{
	const char *nodes = ce_variable(environment, "SLURM_STEP_NODELIST");
	uint32_t place = 0, job = 0, step = 0;
	char text[16];

	if (spank_get_item(spank, S_JOB_NODEID, &place) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return;
	CE_AUTO_FREE char *name = NULL, *spool = ce_spool_dir(job, step, &name);
	void *list = name != NULL && nodes != NULL ? slurm_hostlist_create(nodes) : NULL;
	int found = list != NULL ? slurm_hostlist_find(list, name) : -1;
	slurm_hostlist_destroy(list);
	snprintf(text, sizeof text, "%u", found >= 0 ? (unsigned)found : (unsigned)place);
	spank_setenv(spank, "SLURM_NODEID", text, 1);
}

/* Return a fact about this step that only slurmstepd knows: NAME=value on the heap, NULL for none. */
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

static int prepare_launcher(struct ce_launcher *launcher, spank_t spank, const char *plan,
			    struct ce_error *err)
{
	char **environment = ce_step_environment(spank);
	uid_t uid;
	gid_t gid;
	CE_AUTO_FREE char *fact = find_fact(spank);

	if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS ||
	    environment == NULL)
		return ce_fail(err, "cannot determine the job's user");
	char *const facts[] = { fact, NULL };
	return ce_launcher_prepare(launcher, plan, environment, facts, uid, gid, err);
}

static void note_for_audit(struct ce_step *step, spank_t spank, const char *plan)
{
	uint32_t job = 0, number = 0;
	uid_t uid = (uid_t)-1;

	(void)spank_get_item(spank, S_JOB_ID, &job);
	(void)spank_get_item(spank, S_JOB_STEPID, &number);
	(void)spank_get_item(spank, S_JOB_UID, &uid);
	ce_audit_note(&step->audit, job, number, uid, plan);
	ce_audit_note_claim(&step->audit, ce_variable(ce_step_environment(spank), CE_CARRY_IMAGE));
}

void ce_step_audit(struct ce_step *step, const struct ce_config *config)
{
	struct ce_error err = CE_ERROR_INIT;

	/* a full disk must not stop the site's jobs; the failure is in slurmd's log */
	if (ce_audit_write(&step->audit, config->audit, &err) < 0)
		slurm_info("container_engine: %s", ce_error_text(&err));
	ce_error_clear(&err);
}

/* Return non-zero for the cgroup tracking plugin. Slurm loads only the one tracking plugin that slurm.conf
 * names. */
static int is_cgroup_tracking(struct dl_phdr_info *info, size_t size, void *context)
{
	(void)size, (void)context;
	return info->dlpi_name != NULL && strstr(info->dlpi_name, "/proctrack_cgroup.so") != NULL;
}

/* Make slurmstepd the parent of orphaned processes if Slurm follows parents instead of cgroups
 * (proctrack/linuxproc): the launcher and all that serves the container lose their parents, and Slurm would
 * not find them under process 1. With cgroups, change nothing: slurmstepd would have to wait for children
 * that it does not know, and after each of them notices the end of its tasks 100 ms later. */
static void keep_orphans(void)
{
	if (!dl_iterate_phdr(is_cgroup_tracking, NULL))
		(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Slurm's configuration as slurmstepd itself uses it. Weak, because Slurm does not guarantee this symbol. */
extern slurm_conf_t slurm_conf __attribute__((weak));

/* Return whether the site has a prolog for each task. */
static int site_has_prolog(void)
{
	const char *path = &slurm_conf != NULL ? slurm_conf.task_prolog : NULL;

	return path != NULL && path[0] != '\0';
}

/* Restore the user's own task prolog in the step's environment (plugin_user/submit.c). */
static void unmark_prolog(spank_t spank, char **environment)
{
	const char *own = ce_variable(environment, CE_CARRY_USER_PROLOG);
	const char *named = ce_variable(environment, CE_TASK_PROLOG);
	const char *name = named != NULL ? strrchr(named, '/') : NULL;

	if (name == NULL || strcmp(name, "/ce-prolog") != 0)
		return;
	if (own != NULL)
		(void)spank_setenv(spank, CE_TASK_PROLOG, own, 1);
	else
		(void)spank_unsetenv(spank, CE_TASK_PROLOG);
	(void)spank_unsetenv(spank, CE_CARRY_USER_PROLOG);
}

/* Prepare the step for its plan, or leave it on the host. Return 0, or -1 with the step's error. */
static int obey_planner(struct ce_step *step, spank_t spank)
{
	struct ce_error *err = &step->start_error;
	char **environment = ce_step_environment(spank);

	if (environment == NULL)
		return ce_fail(err, "cannot read the job's environment");
	CE_AUTO_FREE char *text = ce_carry_get(environment);
	const char *plan;
	enum ce_word word = ce_carry_word(text, &plan);
	if (word == CE_SAYS_NOTHING)
		return ce_fail_below(err, CE_HELP_PLAN_NOT_ARRIVED,
				     "the plan of the environment did not arrive on this node");
	step->has_prolog = ce_variable(environment, CE_CARRY_PROLOG) != NULL || site_has_prolog();
	step->has_chdir = ce_variable(environment, CE_CARRY_CHDIR) != NULL;
	step->chose_mpi = ce_variable(environment, CE_CARRY_MPI) != NULL;
	const char *planned = ce_variable(environment, CE_CARRY_TIMES);
	snprintf(step->launcher.planned, sizeof step->launcher.planned, "%s", planned != NULL ? planned : "");
	unmark_prolog(spank, environment);
	forget_carried(spank, strlen(text));
	if (word == CE_SAYS_HOST) {
		step->session_wanted = 0; /* image = "": explicitly no container */
		return 0;
	}
	note_for_audit(step, spank, plan);
	name_node(spank, ce_step_environment(spank));
	int rc = prepare_launcher(&step->launcher, spank, plan, err);
	keep_orphans();
	return rc;
}

int ce_step_unmark(spank_t spank)
{
	int argc = 0;
	char **argv = NULL;
	int marked = spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0 &&
		     ce_unmark_argv(argv);

	return marked || ce_variable(ce_step_environment(spank), CE_CARRY_COUNT) != NULL;
}

void ce_step_refuse(struct ce_step *step)
{
	step->session_wanted = 1;
	ce_fail_below(&step->start_error, CE_HELP_PLAN_NOT_ARRIVED,
		      "srun has prepared this step for a container, but the option --environment did not "
		      "arrive on this node");
}

void ce_step_end_task(const struct ce_step *step, spank_t spank)
{
	const struct ce_error *err = &step->start_error;

	if (ce_step_is_first_task(spank))
		ce_say_error(ce_variable(ce_step_environment(spank), CE_NODE), ce_error_text(err),
			     ce_error_below(err, ""));
	_exit(err->exit_code);
}

void ce_step_prepare(struct ce_step *step, spank_t spank, const struct ce_config *config, pid_t stepd,
		     int is_prepared)
{
	if (!wants_session(spank, is_prepared))
		return;
	step->session_wanted = 1;
	if (config->error.message != NULL)
		ce_fail_below(&step->start_error, CE_HELP_PLUGIN_CONFIGURATION, "%s", config->error.message);
	else if (getpid() != stepd)
		/* Slurm >= 24.05 can call this in a process that shares the memory with slurmstepd, but not
		 * the descriptors: the numbers that it would leave behind mean something else in
		 * slurmstepd. */
		ce_fail_below(&step->start_error, CE_HELP_PLUGIN_CONTAINED,
			      "Slurm calls plugins in processes of their own (contain_spank in "
			      "slurm.conf), where a container cannot be started");
	else
		(void)obey_planner(step, spank);
	forget_facts(spank);
}

/* Log the death for the administrator in slurmd's log; slurm_error would also print it to the user, reworded
 * by Slurm and once per node. */
static void report_death(const void *context, const char *cause)
{
	const struct ce_step *step = context;

	slurm_info("container_engine: %s; the tasks of this node are killed", cause);
	ce_end_report(&step->launcher, cause);
}

/* Return how many tasks of the step this node has. */
static uint32_t tasks_here(spank_t spank)
{
	uint32_t count = 0;

	return spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &count) == ESPANK_SUCCESS ? count : 0;
}

void ce_step_guard_task(struct ce_step *step, spank_t spank)
{
	pid_t pid;

	if (step->launcher.life < 0)
		return;
	if (spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS)
		ce_session_guard_task(&step->launcher, pid, report_death, step);
	if (++step->forked >= tasks_here(spank))
		ce_launcher_let_go(&step->launcher);
}

void ce_step_task_exit(struct ce_step *step, spank_t spank)
{
	int status = 0;

	if (step->launcher.life < 0)
		return;
	(void)spank_get_item(spank, S_TASK_EXIT_STATUS, &status);
	step->launcher.is_terminated |= ce_session_note_exit(status);
	if (++step->exited >= tasks_here(spank))
		ce_session_end(&step->launcher);
}

void ce_step_end(struct ce_step *step, spank_t spank)
{
	if (spank_remote(spank) && step->launcher.life >= 0)
		ce_session_end(&step->launcher);
	ce_error_clear(&step->start_error);
	step->session_wanted = 0;
	step->forked = step->exited = 0;
	step->audit.is_due = 0;
}
