/*
 * ce-enter: `ce run` becomes this program, which joins the container and becomes the command, so that
 * terminal, signals and exit code are the command's own.
 *
 * ce-enter …               its arguments are those of enum ce_enter_arg
 * ce-join [ARG…]          the same for a Slurm task that has run its prologs (plugin_user/task_container.h)
 * ce-join COMMAND [ARG…]  the same for a program of --multi-prog (plugin_user/multi_prog.h)
 * Runs as the user. Exit codes: 125 ours, 126 and 127 as in the shell.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/advice.h"
#include "common/io.h"
#include "common/join.h"
#include "common/outcome.h"
#include "common/pmix_root.h"
#include "common/program.h"
#include "common/say.h"
#include "common/seccomp.h"
#include "generated/help.h"

static int set_variable(void *context, const char *name, const char *value)
{
	(void)context;
	return value != NULL ? setenv(name, value, 1) : unsetenv(name);
}

static const char *get_variable(void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

static const struct ce_variables variables = { set_variable, get_variable, NULL };

static void warn(void *context, const char *line, int is_of_mpi)
{
	(void)context;
	(void)is_of_mpi;
	ce_say_here("warning", line, "");
}

/* Return the command's file, in the container, on the heap for as long as this process is not the command;
 * NULL with the error. */
static char *find_command(struct ce_advisor *advisor, const struct ce_container *container, unsigned wants,
			  char **argv, struct ce_error *err)
{
	struct ce_command command = { .argv = argv, .environment = environ, .variables = &variables,
				      .records = container->environment, .wants = wants, .warn = warn };
	char *found = NULL;

	while (argv[command.argc] != NULL)
		command.argc++;
	int rc = ce_check_command(advisor, &command, &found, err);
	ce_advisor_close(advisor);
	return rc == 0 ? found : NULL;
}

static int become(struct ce_container *container, char **command, struct ce_error *err)
{
	struct ce_advisor advisor = CE_ADVISOR_INIT;
	CE_AUTO_FREE char *prefix = ce_find_prefix();

	if (prefix == NULL)
		return ce_fail(err, "/proc/self/exe: %s", strerror(errno));
	ce_advisor_open(&advisor, prefix);
	if (ce_profile_of_site(prefix, &container->profile, err) < 0 || ce_join(container, err) < 0 ||
	    ce_apply_environment(container->environment, &variables, err) < 0)
		return -1;
	char *program = find_command(&advisor, container, CE_WANTS_WARNINGS, command, err);
	if (program == NULL || ce_profile_apply(container->profile, err) < 0)
		return -1;
	execv(program, command);
	int code = errno == ENOENT ? CE_EXIT_NOT_FOUND : CE_EXIT_NOT_EXECUTABLE;
	err->below = CE_HELP_COMMAND_NOT_EXECUTABLE;
	return ce_fail_code(err, code, "%s: cannot be executed in the container: %s", program,
			    strerror(errno));
}

/* Read the container that the plugin has left in the environment, and remove it from there. Return 0, or -1
 * with the error. */
static int take_container(struct ce_container *container, struct ce_error *err)
{
	const char *text = getenv(CE_JOIN_CONTAINER);
	int skipped = 0;

	if (getenv(CE_NODE) == NULL)
		return ce_fail(err, "ce-join is started by slurmstepd");
	if (text == NULL ||
	    sscanf(text, "%d %d %d %d %d %d %d %d %d %d %d %n", &container->user_ns, &container->mount_ns,
		   &container->environment, &container->profile, &container->may_gain,
		   &container->unshared[0], &container->unshared[1], &container->unshared[2],
		   &container->unshared[3], &container->outcome, &container->guard,
		   &skipped) != 11 ||
	    skipped == 0)
		return ce_fail_below(err, CE_HELP_PLUGIN_CONFIGURATION, CE_NOT_LOADED);
	container->workdir = strdup(text + skipped);
	container->node = getenv(CE_NODE);
	container->task = getenv("SLURM_PROCID");
	unsetenv(CE_JOIN_CONTAINER);
	(void)fcntl(container->outcome, F_SETFD, FD_CLOEXEC);
	(void)fcntl(container->guard, F_SETFD, FD_CLOEXEC);
	return container->workdir != NULL ? 0 : ce_fail(err, "out of memory");
}

/* Take the place in which the step's printed messages are recorded, which the plugin has passed in the
 * environment. */
static void take_printed_messages(struct ce_container *container)
{
	static char planned[64]; /* the size of the plugin's (plugin/launcher.h) */
	const char *text = getenv(CE_JOIN_PRINTED_MESSAGES);
	int skipped = 0;

	if (text == NULL || sscanf(text, "%d %n", &container->marks, &skipped) != 1 ||
	    fcntl(container->marks, F_SETFD, FD_CLOEXEC) < 0)
		container->marks = -1;
	snprintf(planned, sizeof planned, "%s", skipped > 0 ? text + skipped : "");
	container->planned = planned;
	unsetenv(CE_JOIN_PRINTED_MESSAGES);
}

/* Join the container and execute the command, with its full path as argv[0], as Slurm does. Return -1 with
 * the error if that fails. */
static int become_task(struct ce_container *container, char *command, char **argv, struct ce_error *err)
{
	struct ce_advisor advisor = CE_ADVISOR_INIT;
	CE_AUTO_FREE char *prefix = ce_find_prefix();

	argv[0] = command;
	if (prefix != NULL)
		ce_advisor_open(&advisor, prefix);
	if (take_container(container, err) < 0 || ce_join(container, err) < 0 ||
	    ce_apply_environment(container->environment, &variables, err) < 0)
		return -1;
	/* without warnings: tasks do not know here which of them prints them */
	char *program = find_command(&advisor, container, 0, argv, err);
	if (program == NULL)
		return -1;
	if (ce_pmix_of_root(geteuid(), &variables) < 0)
		return ce_fail(err, "cannot set the variables of PMIx");
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return ce_fail(err, "cannot tie the task to slurmstepd: %s", strerror(errno));
	argv[0] = program;
	if (ce_profile_apply(container->profile, err) < 0)
		return -1;
	int marks = container->marks;
	container->marks = -1;
	ce_container_close(container);
	container->marks = marks; /* for what the caller prints */
	execv(program, argv);
	err->below = CE_HELP_COMMAND_NOT_EXECUTABLE;
	return ce_fail_code(err, CE_EXIT_NOT_EXECUTABLE, "%s: cannot be executed in the container: %s",
			    program, strerror(errno));
}

/* Run a task; return its exit code on failure. As in the plugin, an error is printed once per step, by the
 * first task of the first node to report it. The programs of --multi-prog may differ, and so may their tasks'
 * errors, so each task may print; if the step has not been prepared, the error is the same for all. */
static int run_task(char **argv)
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;
	const char *named = getenv(CE_JOIN_COMMAND), *task = getenv("SLURM_LOCALID");
	CE_AUTO_FREE char *command = strdup(named != NULL ? named : argv[1] != NULL ? argv[1] : "");
	int prints = task == NULL || strcmp(task, "0") == 0 ||
		     (named == NULL && getenv(CE_JOIN_CONTAINER) != NULL);

	unsetenv(CE_JOIN_COMMAND);
	take_printed_messages(&container);
	if (command == NULL)
		ce_fail(&err, "out of memory");
	else
		become_task(&container, command, named != NULL || argv[1] == NULL ? argv : argv + 1, &err);
	if (prints && ce_claim_message(container.marks, container.planned, ce_error_text(&err)))
		ce_say_error(getenv(CE_NODE), ce_error_text(&err), ce_error_below(&err, CE_HELP_TASK_JOIN));
	return err.exit_code;
}

/* Read "USER_NS[,NS…]". Return 0, or -1 if one of them is not a descriptor. */
static int take_namespaces(char *text, struct ce_container *container)
{
	char *rest = NULL, *one = strtok_r(text, ",", &rest);

	container->user_ns = one != NULL ? ce_descriptor(one) : -1;
	for (size_t i = 0; i < CE_MAX_UNSHARED && (one = strtok_r(NULL, ",", &rest)) != NULL; i++) {
		container->unshared[i] = ce_descriptor(one);
		if (container->unshared[i] < 0)
			return -1;
	}
	return container->user_ns < 0 || (rest != NULL && *rest != '\0') ? -1 : 0;
}

/* Take the descriptors for the outcome of `ce run`, if there are any, out of the environment. */
static void take_outcome(struct ce_container *container)
{
	const char *text = getenv(CE_OUTCOME);

	if (text == NULL ||
	    sscanf(text, "%d %d %d", &container->outcome, &container->json, &container->guard) != 3)
		return;
	(void)fcntl(container->guard, F_SETFD, FD_CLOEXEC);
	(void)fcntl(container->outcome, F_SETFD, FD_CLOEXEC);
	if (container->json >= 0)
		(void)fcntl(container->json, F_SETFD, FD_CLOEXEC);
	unsetenv(CE_OUTCOME);
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	if (argc > 0 && ce_is_called(argv[0], "ce-join"))
		return run_task(argv);
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;

	if (argc <= 1 + CE_ENTER_COMMAND) {
		fprintf(stderr, "ce: error: ce-enter is started by `ce run`\n");
		return CE_EXIT_ENGINE;
	}
	char **args = argv + 1;
	int is_bad = take_namespaces(args[CE_ENTER_NAMESPACES], &container) < 0;

	container.mount_ns = ce_descriptor(args[CE_ENTER_MOUNT_NS]);
	container.environment = ce_descriptor(args[CE_ENTER_ENVIRONMENT]);
	container.workdir = args[CE_ENTER_WORKDIR];
	take_outcome(&container);
	if (is_bad || container.mount_ns < 0 || container.environment < 0) {
		fprintf(stderr, "ce: error: ce-enter: bad descriptors\n");
		return CE_EXIT_ENGINE;
	}
	become(&container, args + CE_ENTER_COMMAND, &err);
	ce_outcome_failed(container.outcome, ce_error_text(&err));
	ce_say_here("error", ce_error_text(&err), ce_error_below(&err, CE_HELP_TASK_JOIN));
	return err.exit_code;
}
