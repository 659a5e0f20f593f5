#define _GNU_SOURCE
#include "submit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/help.h"
#include "common/io.h"
#include "multi_prog.h"
#include "step_shared.h"

extern char **environ;

enum { MAX_PLAN = CE_CARRY_PIECE * CE_CARRY_MAX_PARTS };

/* srun blocks signals while it starts; the planner must hear Ctrl-C during a long import. */
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

static int spawn_planner(const struct ce_config *config, const char *caller,
			 const char *environment, int output, pid_t *pid)
{
	const char *const argv[] = { config->plan, "--for", caller, "--", environment, NULL };
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

static int planner_status(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1;
	}
	return status;
}

int ce_submit_plan(const struct ce_config *config, const char *caller, const char *environment,
		   char **plan, struct ce_error *err)
{
	int ends[2];
	pid_t pid = -1;
	size_t size = 0;
	const char *said;

	*plan = NULL;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return ce_fail(err, "cannot start the planner: %s", strerror(errno));
	int rc = spawn_planner(config, caller, environment, ends[1], &pid);
	close(ends[1]);
	CE_AUTO_FREE char *text = rc == 0 ? ce_read_all(ends[0], MAX_PLAN, &size) : NULL;
	int read_errno = errno;
	close(ends[0]);
	if (rc != 0)
		return ce_fail_below(err, CE_HELP_PLUGIN, "cannot start %s: %s", config->plan, strerror(rc));
	int status = planner_status(pid);
	/* first: a planner whose output is not read to its end is killed by that */
	if (text == NULL)
		return ce_fail(err, "cannot read the plan: %s", strerror(read_errno));
	if (!WIFEXITED(status))
		return ce_fail_below(err, CE_HELP_PLANNER, "the planner was killed; nothing was started");
	if (WEXITSTATUS(status) != 0)
		return -1;
	if (ce_carry_word(text, &said) == CE_SAYS_NOTHING)
		return ce_fail_below(err, CE_HELP_MUTE,
				     "%s printed neither a plan nor that there is no container; nothing was "
				     "started",
				     config->plan);
	*plan = text;
	text = NULL;
	return 0;
}

enum ce_word ce_carry_word(const char *text, const char **plan)
{
	*plan = NULL;
	if (text == NULL)
		return CE_SAYS_NOTHING;
	if (strcmp(text, CE_WORD_HOST) == 0)
		return CE_SAYS_HOST;
	if (strncmp(text, CE_WORD_PLAN, strlen(CE_WORD_PLAN)) != 0 || text[strlen(CE_WORD_PLAN)] == '\0')
		return CE_SAYS_NOTHING;
	*plan = text + strlen(CE_WORD_PLAN);
	return CE_SAYS_PLAN;
}

char *ce_submit_passing(const char *plan)
{
	const char *found = strstr(plan, CE_PLAN_PASSING);

	if (found == NULL)
		return NULL;
	found += strlen(CE_PLAN_PASSING);
	size_t length = strcspn(found, "\"\\");
	return *found == '/' && found[length] == '"' ? strndup(found, length) : NULL;
}

void ce_submit_remove(const char *directory)
{
	const char *const argv[] = { "rm", "-rf", "--", directory, NULL };
	pid_t pid;

	/* posix_spawn does not change the strings of argv */
	if (posix_spawn(&pid, "/bin/rm", NULL, NULL, (char *const *)argv, environ) == 0)
		planner_status(pid);
}

int ce_carry_put(const char *plan, int64_t begun, struct ce_error *err)
{
	char name[64], count[16], times[64];
	size_t size = strlen(plan), parts = (size + CE_CARRY_PIECE - 1) / CE_CARRY_PIECE;

	for (size_t i = 0; i < parts; i++) {
		CE_AUTO_FREE char *piece = strndup(plan + i * CE_CARRY_PIECE, CE_CARRY_PIECE);
		snprintf(name, sizeof name, CE_CARRY_PART "%zu", i);
		if (piece == NULL || setenv(name, piece, 1) < 0)
			return ce_fail(err, "out of memory");
	}
	snprintf(times, sizeof times, "%lld %lld", (long long)begun, (long long)ce_now_ns());
	setenv(CE_CARRY_TIMES, times, 1);
	snprintf(count, sizeof count, "%zu", parts);
	return setenv(CE_CARRY_COUNT, count, 1) < 0 ? ce_fail(err, "out of memory") : 0;
}

void ce_carry_forget(void)
{
	unsetenv(CE_CARRY_COUNT);
}

int ce_carry_is_there(char **environment)
{
	return ce_variable(environment, CE_CARRY_COUNT) != NULL;
}

/* The words of this process's command line, each with a NUL behind it; on the heap. NULL on failure. */
static char *command_line(size_t *size)
{
	CE_AUTO_FD fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	return fd >= 0 ? ce_read_all(fd, 1 << 24, size) : NULL;
}

/* Whether one of them begins so: getopt accepts an option's unique beginning. */
static int has_word(const char *line, size_t size, const char *beginning)
{
	for (const char *word = line; word != NULL && word < line + size; word += strlen(word) + 1) {
		if (strncmp(word, beginning, strlen(beginning)) == 0)
			return 1;
	}
	return 0;
}

static void note(const char *variable, int is_so)
{
	if (is_so)
		setenv(variable, "1", 1);
	else
		unsetenv(variable);
}

void ce_carry_options(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = command_line(&size);

	/* getopt takes "--mp=pmix", too */
	note(CE_CARRY_MPI, getenv("SLURM_MPI_TYPE") != NULL || has_word(line, size, "--mp"));
	note(CE_CARRY_PROLOG, getenv("SLURM_TASK_PROLOG") != NULL || has_word(line, size, "--task-p"));
}

int ce_submit_has_programs(int argc, char *const *argv)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = command_line(&size);

	return has_word(line, size, "--mul") && ce_multi_prog_given(line, size, argc, argv);
}

int ce_submit_broadcasts(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = command_line(&size);

	return getenv("SLURM_BCAST") != NULL || has_word(line, size, "--bc");
}

const char *ce_variable(char **environment, const char *name)
{
	size_t length = strlen(name);

	for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
		if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
			return *entry + length + 1;
	}
	return NULL;
}

char *ce_carry_get(char **environment)
{
	const char *count_text = ce_variable(environment, CE_CARRY_COUNT);
	char *end, name[64];
	long parts = count_text != NULL ? strtol(count_text, &end, 10) : -1;

	if (parts < 0 || parts > CE_CARRY_MAX_PARTS || *count_text == '\0' || *end != '\0')
		return NULL;
	CE_AUTO_FREE char *plan = malloc((size_t)parts * CE_CARRY_PIECE + 1);
	size_t used = 0;
	for (long i = 0; plan != NULL && i < parts; i++) {
		snprintf(name, sizeof name, CE_CARRY_PART "%ld", i);
		const char *piece = ce_variable(environment, name);
		size_t length = piece != NULL ? strlen(piece) : 0;
		if (length == 0 || length > CE_CARRY_PIECE)
			return NULL;
		memcpy(plan + used, piece, length);
		used += length;
	}
	if (plan == NULL)
		return NULL;
	plan[used] = '\0';
	char *result = plan;
	plan = NULL;
	return result;
}
