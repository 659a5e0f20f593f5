#define _GNU_SOURCE
#include "task.h"

#include <ctype.h>
#include <errno.h>
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
#include "common/say.h"
#include "common/seccomp.h"
#include "generated/help.h"
#include "multi_prog.h"
#include "plugin/carry.h"
#include "plugin/launcher.h"
#include "plugin/plugin_script.h"
#include "plugin/session.h"
#include "plugin/session_end.h"
#include "step_processes.h"
#include "task_container.h"

enum { DEATH_WAIT_MS = 200 };

/* ---- the task's environment and command -------------------------------------------------------- */

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
	return ce_variable(ce_step_environment(context), name);
}

/* Return the command as Slurm will execute it, on the heap: with --bcast to a directory, it makes up the name
 * of the file after task_init, as here (BCAST_FILE_FMT of its task.c, from 22.05 to 26.05). */
static char *command_path(spank_t spank, const char *command)
{
	const char *node = task_variable(spank, CE_NODE);
	size_t length = strlen(command);
	uint32_t job = 0, number = 0;
	char *path = NULL;

	if (length == 0 || command[length - 1] != '/' ||
	    spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_JOB_STEPID, &number) != ESPANK_SUCCESS)
		return strdup(command);
	return asprintf(&path, "%sslurm_bcast_%u.%u_%s", command, job, number, node != NULL ? node : "") < 0
		       ? NULL
		       : path;
}

/* ---- messages for the user --------------------------------------------------------------------- */

static void say_once(spank_t spank, const char *kind, const char *text)
{
	/* empty if another node of the step has already printed the launcher's messages */
	if (text[0] != '\0' && ce_step_is_first_task(spank))
		ce_say(task_variable(spank, CE_NODE), kind, text);
}

/* Print the error, unless another node has printed it. */
static void say_error(const struct ce_step *step, spank_t spank, const struct ce_error *err, int marks)
{
	const char *message = ce_error_text(err);

	if (err->is_of_launcher)
		say_once(spank, "error", message);
	else if (ce_step_is_first_task(spank) && ce_claim_message(marks, step->launcher.planned, message))
		ce_say_error(task_variable(spank, CE_NODE), message, ce_error_below(err, CE_HELP_TASK_JOIN));
}

/* ---- joining ----------------------------------------------------------------------------------- */

/* End the task if its container died before the command could run. The error that followed from this is not
 * printed: without its image, the task may fail to find its command. */
static void end_if_it_died(const struct ce_step *step, spank_t spank, const struct ce_error *err,
			   int marks)
{
	const struct ce_launcher *launcher = &step->launcher;
	char cause[CE_CAUSE_SIZE];

	/* The image can become unreadable before the death of its server is noticed. */
	if (err->exit_code == CE_EXIT_NOT_EXECUTABLE)
		ce_wait_readable(launcher->life, ce_now_ms() + DEATH_WAIT_MS);
	if (!ce_session_died(launcher))
		return;
	if (ce_session_claim_report(launcher, cause) && ce_claim_message(marks, launcher->planned, cause))
		ce_say_error(task_variable(spank, CE_NODE), cause, ce_end_help(cause));
	_exit(CE_EXIT_ENGINE);
}

/* Remove the lines that begin with `start`; `text` keeps no newline at its end. */
static void drop_lines(char *text, const char *start)
{
	char *to = text, *from = text;

	while (*from != '\0') {
		size_t length = strcspn(from, "\n"), next = length + (from[length] == '\n');
		if (strncmp(from, start, strlen(start)) != 0) {
			if (to != text)
				*to++ = '\n';
			memmove(to, from, length);
			to += length;
		}
		from += next;
	}
	*to = '\0';
}

/* The place of a warning: it is printed once per step. */
struct warned {
	const struct ce_step *step;
	spank_t spank;
	struct ce_container *container;
};

/* Print a warning, by the first task of the first node of the step that has it. For a program of another MPI
 * than the image's, leave out what hooks say of the image's MPI. */
static void warn_once(void *context, const char *line, int is_of_mpi)
{
	const struct warned *warned = context;
	struct ce_container *container = warned->container;
	CE_AUTO_FREE char *whole = strdup(line);

	if (is_of_mpi && container->notices != NULL)
		drop_lines(container->notices, "hook pmi");
	if (whole == NULL)
		return;
	/* it may have names of the image's files */
	ce_make_one_line(whole);
	if (ce_step_is_first_task(warned->spank) &&
	    ce_claim_message(container->marks, warned->step->launcher.planned, whole))
		ce_say(task_variable(warned->spank, CE_NODE), "warning", whole);
}

/* Check that the command can be executed, to report the right error and exit code; Slurm itself looks it up
 * later, with the same PATH. Return 0, or -1 with the error. */
static int check_command(const struct ce_step *step, spank_t spank, const struct ce_advisor *advisor,
			 struct ce_container *container, struct ce_error *err)
{
	const struct ce_variables variables = { set_task_variable, task_variable, spank };
	struct warned warned = { step, spank, container };
	struct ce_command command = { .variables = &variables, .records = container->environment,
				      .warn = warn_once, .context = &warned };
	int refused = ce_pmix_of_root(geteuid(), &variables);
	CE_AUTO_FREE char *found = NULL;

	if (refused < 0)
		return ce_fail(err, "cannot set the variables of PMIx");
	if (spank_get_item(spank, S_JOB_ARGV, &command.argc, &command.argv) != ESPANK_SUCCESS ||
	    command.argc < 1)
		return 0;
	command.environment = ce_step_environment(spank);
	command.wants = (ce_step_is_first_task(spank) ? CE_WANTS_WARNINGS | CE_WANTS_RANKS : 0) |
			(refused ? CE_IS_REFUSED : 0) | (step->chose_mpi ? CE_CHOSE_MPI : 0) |
			(step->has_chdir ? CE_HAS_CHDIR : 0);
	return ce_check_command(advisor, &command, &found, err);
}

/* Join, or leave it to ce-join: after the task's prologs, and for the programs of --multi-prog. */
static int enter(const struct ce_step *step, spank_t spank, const struct ce_config *config,
		 struct ce_container *container, struct ce_error *err)
{
	const struct ce_variables variables = { set_task_variable, task_variable, spank };
	int argc = 0;
	char **argv = NULL;
	struct ce_advisor advisor = CE_ADVISOR_INIT;

	container->may_gain = config->may_gain;
	container->node = task_variable(spank, CE_NODE);
	container->task = task_variable(spank, "SLURM_PROCID");
	container->planned = step->launcher.planned;
	if (config->seccomp != NULL)
		container->profile = ce_profile_open(config->seccomp, err);
	if (config->seccomp != NULL ? container->profile < 0
				    : ce_profile_of_site(config->prefix, &container->profile, err) < 0)
		return -1;
	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
		argc = 0;
	if (ce_multi_prog_prefixed(argc, argv))
		return ce_after_prolog_arrange(container, NULL, &variables, err);
	if (step->has_prolog && argc > 0) {
		CE_AUTO_FREE char *command = command_path(spank, argv[0]);
		if (command == NULL)
			return ce_fail(err, "out of memory");
		if (ce_after_prolog_arrange(container, command, &variables, err) < 0)
			return -1;
		argv[0] = config->join;
		return 0;
	}
	ce_advisor_open(&advisor, config->prefix);
	int rc = ce_join(container, err);
	if (rc == 0)
		rc = ce_apply_environment(container->environment, &variables, err);
	if (rc == 0)
		rc = check_command(step, spank, &advisor, container, err);
	ce_advisor_close(&advisor);
	return rc;
}

/* Wait for the container and enter it. `*marks` becomes the descriptor of the directory that records printed
 * messages; the caller closes it. */
static int join(struct ce_step *step, spank_t spank, const struct ce_config *config, int *marks,
		struct ce_error *err)
{
	struct ce_container container = CE_CONTAINER_INIT;
	int rc = -1;

	err->below = step->start_error.below;
	if (step->start_error.message != NULL)
		return ce_fail_code(err, step->start_error.exit_code, "%s", step->start_error.message);
	ce_launcher_start(&step->launcher, config, ce_step_environment(spank));
	if (ce_session_wait(&step->launcher, config->start_timeout_s, &container, err) == 0 &&
	    ce_task_container(&step->launcher, config->start_timeout_s, &container, err) == 0)
		rc = enter(step, spank, config, &container, err);
	if (rc == 0)
		ce_shared_join(step->launcher.shared);
	if (container.notices != NULL)
		say_once(spank, "warning", container.notices);
	if (rc == 0 && ce_step_is_first_task(spank))
		(void)ce_write_all(STDOUT_FILENO, container.entrypoint_output,
				   strlen(container.entrypoint_output));
	*marks = container.marks;
	container.marks = -1;
	CE_AUTO_FD profile = container.profile;
	container.profile = -1;
	ce_container_close(&container);
	/* Set this after the join, which would clear it: a task must not outlive the slurmstepd
	 * that guards its container. */
	if (rc == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		rc = ce_fail(err, "cannot tie the task to slurmstepd: %s", strerror(errno));
	if (rc == 0)
		rc = ce_profile_apply(profile, err);
	return rc;
}

/* Wait for the container and join it, or end the task with the reason and the matching exit code. */
static void join_or_end(struct ce_step *step, spank_t spank, const struct ce_config *config)
{
	struct ce_error err = CE_ERROR_INIT;

	/* proctrack/linuxproc sends no signal to processes called slurmstepd, and until execve this is one:
	 * without a name of its own, a task that waits for its container would not receive scancel's
	 * signals. */
	prctl(PR_SET_NAME, "ce-task");
	/* Later versions of slurmstepd have a handler for SIGTERM, which is inherited here and does
	 * nothing. */
	ce_drop_handlers();
	ce_shared_name(step->launcher.shared, task_variable(spank, CE_NODE));
	CE_AUTO_FD marks = -1;
	if (join(step, spank, config, &marks, &err) == 0)
		return;
	end_if_it_died(step, spank, &err, marks);
	say_error(step, spank, &err, marks);
	/* Don't return an error from the plugin: Slurm would add lines that hide the cause, and the exit code
	 * would be 1. This process is the task and has nothing to clean up. */
	_exit(err.exit_code);
}

/* ---- a batch script that runs on the host ------------------------------------------------------ */

static int is_of_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* Return whether the line has the word, also after a slash or quote: /usr/bin/srun, "srun". */
static int has_word(const char *line, size_t length, const char *word)
{
	size_t size = strlen(word);

	for (size_t i = 0; i + size <= length; i++) {
		if (strncmp(line + i, word, size) == 0 && (i == 0 || !is_of_word(line[i - 1])) &&
		    (i + size == length || !is_of_word(line[i + size])))
			return 1;
	}
	return 0;
}

int ce_script_starts_steps(const char *text)
{
	static const char *const words[] = { "srun", "mpirun", "mpiexec", "ce run" };

	while (*text != '\0') {
		size_t length = strcspn(text, "\n"), blanks = strspn(text, " \t");

		for (size_t i = 0; text[blanks] != '#' && i < sizeof words / sizeof words[0]; i++) {
			if (has_word(text, length, words[i]))
				return 1;
		}
		text += length + (text[length] == '\n');
	}
	return 0;
}

static int is_on_host(spank_t spank)
{
	int is_set = ce_variable(ce_step_environment(spank), CE_SCRIPT_ON_HOST) != NULL;

	if (is_set)
		spank_unsetenv(spank, CE_SCRIPT_ON_HOST);
	return is_set;
}

/* Leave a note, unless the script calls `ce run`. Print a warning if the script starts no step: nothing of it
 * runs in a container. */
static void begin_script(spank_t spank, const char *environment)
{
	char line[512];

	if (environment == NULL || !ce_script_is_batch(spank) || is_on_host(spank))
		return;
	CE_AUTO_FREE char *text = ce_script_read(spank);
	/* ce run also uses the environment, and removes no note */
	if (ce_script_note[0] != '\0' && (text == NULL || !has_word(text, strlen(text), "ce run")))
		ce_note_make(ce_script_note);
	if (text == NULL || ce_script_starts_steps(text))
		return;
	snprintf(line, sizeof line,
		 "this script has no srun of its own: what is not started through srun, also by a tool "
		 "that it calls, runs on the host, not in '%.256s' (write srun before the commands to run "
		 "inside)",
		 environment);
	ce_say(NULL, "warning", line);
}

void ce_task_begin(struct ce_step *step, spank_t spank, const struct ce_config *config,
		   const char *environment)
{
	ce_holder_start(config, ce_step_environment(spank));
	if (step->session_wanted)
		join_or_end(step, spank, config);
	else
		begin_script(spank, environment);
}
