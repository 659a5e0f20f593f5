#define _GNU_SOURCE
#include "planner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/held.h"
#include "common/io.h"
#include "generated/help.h"
#include "plugin/carry.h"

extern char **environ;

enum { MAX_PLAN = CE_CARRY_PIECE * CE_CARRY_MAX_PARTS };

/* srun blocks signals while it starts; the planner must receive Ctrl-C during a long import. */
static int spawn_attributes(posix_spawnattr_t *attributes)
{
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	return posix_spawnattr_setsigmask(attributes, &none) != 0 ||
			       posix_spawnattr_setsigdefault(attributes, &all) != 0 ||
			       posix_spawnattr_setflags(attributes,
							POSIX_SPAWN_SETSIGMASK |
								POSIX_SPAWN_SETSIGDEF) != 0
		       ? -1
		       : 0;
}

static int spawn_planner(const struct ce_config *config, const char *const *argv, int output, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int rc = ENOMEM;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return ENOMEM;
	if (posix_spawnattr_init(&attributes) == 0) {
		if (spawn_attributes(&attributes) == 0 &&
		    posix_spawn_file_actions_adddup2(&actions, output, 1) == 0)
			/* posix_spawn does not change the strings of argv */
			rc = posix_spawn(pid, config->plan, &actions, &attributes,
					 (char *const *)argv, environ);
		posix_spawnattr_destroy(&attributes);
	}
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

void ce_planned_clear(struct ce_planned *planned)
{
	free(planned->text);
	free(planned->ephemeral_store);
	free(planned->image);
	free(planned->job_container);
	*planned = (struct ce_planned){ 0 };
}

static int begins_with(const char *line, size_t length, const char *name)
{
	return length > strlen(name) && memcmp(line, name, strlen(name)) == 0;
}

/* Keep the rest of a line after `name`. Return 0, or -1 without memory or if there was such a line before. */
static int keep(char **value, const char *line, size_t length, const char *name)
{
	if (*value != NULL)
		return -1;
	*value = strndup(line + strlen(name), length - strlen(name));
	return *value != NULL ? 0 : -1;
}

/* Parse a line before the keyword. Return 0, or -1 for an unknown line. */
static int take_fact(const char *line, size_t length, struct ce_planned *planned)
{
	if (length == strlen(CE_LINE_INSIDE) && memcmp(line, CE_LINE_INSIDE, length) == 0) {
		planned->script_inside = 1;
		return 0;
	}
	if (begins_with(line, length, CE_LINE_STORE))
		return keep(&planned->ephemeral_store, line, length, CE_LINE_STORE);
	if (begins_with(line, length, CE_LINE_IMAGE))
		return keep(&planned->image, line, length, CE_LINE_IMAGE);
	if (begins_with(line, length, CE_LINE_JOB_CONTAINER))
		return keep(&planned->job_container, line, length, CE_LINE_JOB_CONTAINER);
	return -1;
}

int ce_planned_read(const char *output, struct ce_planned *planned)
{
	const char *plan;

	*planned = (struct ce_planned){ 0 };
	while (ce_carry_word(output, &plan) == CE_SAYS_NOTHING) {
		const char *end = strchr(output, '\n');
		if (end == NULL || take_fact(output, (size_t)(end - output), planned) < 0) {
			ce_planned_clear(planned);
			return -1;
		}
		output = end + 1;
	}
	/* srun removes the store, so its path must be absolute */
	if (planned->ephemeral_store == NULL || planned->ephemeral_store[0] == '/')
		planned->text = strdup(output);
	if (planned->text == NULL)
		ce_planned_clear(planned);
	return planned->text != NULL ? 0 : -1;
}

/* Return the planner's command line on the heap; its strings are not copied. */
static const char **command(const struct ce_config *config, const char *caller, const char *const *words)
{
	size_t count = 0, used = 0;

	while (words[count] != NULL)
		count++;
	const char **argv = calloc(count + 4, sizeof *argv);
	if (argv == NULL)
		return NULL;
	argv[used++] = config->plan;
	argv[used++] = "--for";
	argv[used++] = caller;
	memcpy(argv + used, words, count * sizeof *words);
	return argv;
}

int ce_planner_run(const struct ce_config *config, const char *caller, const char *const *words,
		   struct ce_planned *planned, struct ce_error *err)
{
	int ends[2];
	pid_t pid = -1;

	*planned = (struct ce_planned){ 0 };
	CE_AUTO_FREE const char **argv = command(config, caller, words);
	if (argv == NULL || pipe2(ends, O_CLOEXEC) < 0)
		return ce_fail(err, "cannot start the planner: %s", strerror(errno));
	/* in a container with Slurm's programs: it looks for programs of the host */
	int rc = ce_exchange_path() < 0 ? ENOMEM : spawn_planner(config, argv, ends[1], &pid);
	if (rc == 0 && ce_exchange_path() < 0)
		rc = ENOMEM;
	close(ends[1]);
	CE_AUTO_FREE char *text = rc == 0 ? ce_read_all(ends[0], MAX_PLAN, NULL) : NULL;
	int read_errno = errno;
	close(ends[0]);
	if (rc != 0)
		return ce_fail_below(err, ce_start_help(rc), "cannot start %s: %s", config->plan,
				     strerror(rc));
	int status = ce_await_child(pid);
	/* check this first: a planner whose output is not read to its end is killed by SIGPIPE */
	if (text == NULL)
		return ce_fail(err, "cannot read the plan: %s", strerror(read_errno));
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
		return ce_fail_below(err, CE_HELP_PLANNER_KILLED, "interrupted; nothing was started");
	if (!WIFEXITED(status))
		return ce_fail_below(err, CE_HELP_PLANNER_KILLED,
				     "the planner was killed; nothing was started");
	if (WEXITSTATUS(status) != 0)
		return -1;
	if (ce_planned_read(text, planned) < 0)
		return ce_fail_below(err, CE_HELP_PLANNER_MUTE,
				     "%s printed no plan, and not that the step needs none; nothing was "
				     "started",
				     config->plan);
	return 0;
}

void ce_remove_ephemeral_store(const char *directory)
{
	const char *const argv[] = { "rm", "-rf", "--", directory, NULL };
	char *const none[] = { NULL };
	pid_t pid;

	/* posix_spawn does not change the strings of argv */
	if (posix_spawn(&pid, "/bin/rm", NULL, NULL, (char *const *)argv, none) == 0)
		ce_await_child(pid);
}
