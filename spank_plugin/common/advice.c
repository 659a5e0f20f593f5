#define _GNU_SOURCE
#include "advice.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generated/help.h"
#include "io.h"
#include "job_places.h"
#include "look_up.h"
#include "program.h"
#include "program_head.h"
#include "uses_mpi.h"
#include "words.h"

/* Time limits: of ce-advise, and of its end after SIGKILL. */
enum { LIMIT_MS = 2000, END_MS = 100 };
enum { ANSWER = 16 * 1024 };

void ce_advisor_open(struct ce_advisor *advisor, const char *prefix)
{
	CE_AUTO_FREE char *path = NULL;

	if (asprintf(&path, "%s" CE_LIBEXEC "ce-advise", prefix) < 0)
		path = NULL;
	advisor->program = path != NULL ? open(path, O_PATH | O_CLOEXEC) : -1;
	advisor->directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	advisor->named = getcwd(NULL, 0);
}

void ce_advisor_close(struct ce_advisor *advisor)
{
	ce_close_fd(&advisor->program);
	ce_close_fd(&advisor->directory);
	free(advisor->named);
	advisor->named = NULL;
}

/* ---- cheap questions --------------------------------------------------------------------------- */

static const char *value_of(const struct ce_command *command, const char *name)
{
	return command->variables->get(command->variables->context, name);
}

static int is_other_than(const struct ce_command *command, const char *name, const char *value)
{
	const char *current = value_of(command, name);

	return current != NULL && strcmp(current, value) != 0;
}

/* Return whether a program is an mpirun, perhaps, or uses MPI. */
static int may_be_of_mpi(const char *file)
{
	return ce_is_in(CE_MPIRUNS, ce_base_name(file)) || ce_uses_mpi(file);
}

/* Return whether an argument is, or names in its text or its file, a program for which the search looks. */
static int has_it(const struct ce_search *search, const char *argument)
{
	CE_AUTO_FREE char *text = argument[0] != '-' ? strdup(argument) : NULL;

	return text != NULL && (ce_names_it(search, argument) || ce_in_script(search, argument, 1) ||
				ce_in_text(search, text));
}

/* Return whether a program that the command starts may be a rank that does not find the others. */
static int may_start_ranks(const struct ce_command *command, const char *found)
{
	char ignored[CE_WORD_SIZE];
	const struct ce_search search = { value_of(command, "PATH"), may_be_of_mpi, NULL, ignored };
	int is_alone = is_other_than(command, "SLURM_STEP_NUM_TASKS", "1") &&
		       !is_other_than(command, "SLURM_MPI_TYPE", "none");

	if (!is_alone && !is_other_than(command, "SLURM_NNODES", "1"))
		return 0;
	if (!ce_is_in(CE_SHELLS CE_WRAPPERS, ce_base_name(command->argv[0])))
		return ce_in_script(&search, found, 0);
	for (int i = 1; i < command->argc; i++) {
		if (has_it(&search, command->argv[i]))
			return 1;
	}
	return 0;
}

/* Return whether the first argument that is no option is a file on the host that is not in the container. */
static int may_lack_script(const struct ce_advisor *advisor, const struct ce_command *command)
{
	struct stat st;
	int i = 1;

	while (i < command->argc && command->argv[i][0] == '-')
		i++;
	return i < command->argc && command->argv[i][0] != '/' && advisor->directory >= 0 &&
	       access(command->argv[i], F_OK) < 0 && errno == ENOENT &&
	       fstatat(advisor->directory, command->argv[i], &st, 0) == 0;
}

static int starts_elsewhere(const struct ce_advisor *advisor)
{
	CE_AUTO_FREE char *here = getcwd(NULL, 0);

	return advisor->named != NULL && here != NULL && strcmp(here, advisor->named) != 0;
}

static int is_worth_asking(const struct ce_advisor *advisor, const struct ce_command *command,
			   const char *found)
{
	unsigned long long left, all;
	unsigned wants = command->wants;

	if (ce_is_in(CE_MPIRUNS, ce_base_name(command->argv[0])))
		return 1;
	if ((wants & (CE_WANTS_WARNINGS | CE_IS_REFUSED)) != 0 && ce_uses_mpi(found))
		return 1;
	if ((wants & CE_WANTS_WARNINGS) == 0)
		return 0;
	return ((wants & CE_IS_REFUSED) != 0 && (wants & CE_CHOSE_MPI) != 0) ||
	       ((wants & CE_WANTS_RANKS) != 0 && may_start_ranks(command, found)) ||
	       may_lack_script(advisor, command) ||
	       ((wants & CE_HAS_CHDIR) != 0 && starts_elsewhere(advisor)) ||
	       ce_lacks_shared_memory(command->variables, &left, &all) ||
	       ce_may_lack_places(command->records, command->variables);
}

/* ---- ce-advise --------------------------------------------------------------------------------- */

/* Keep over execve the capabilities by which a process that has joined looks at the container's files, so
 * that ce-advise sees what the task sees. */
static void keep_sight(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, sets) < 0)
		return;
	sets[0].inheritable = sets[0].permitted;
	if (syscall(SYS_capset, &header, sets) < 0)
		return;
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0);
}

/* Become ce-advise, in a child that shares the task's memory until then. */
__attribute__((noreturn)) static void become(const struct ce_advisor *advisor,
					     const struct ce_command *command, char **argv,
					     int answer)
{
	const int from[] = { answer, answer, command->records, advisor->directory };
	int moved[4], first_free = CE_ADVISE_HOST + 1;
	int program = fcntl(advisor->program, F_DUPFD_CLOEXEC, first_free);

	for (int i = 0; i < 4; i++)
		moved[i] = fcntl(from[i], F_DUPFD_CLOEXEC, first_free);
	for (int i = 0; i < 4; i++) {
		if (moved[i] < 0 || dup2(moved[i], CE_ADVISE_ANSWER + i) < 0)
			close(CE_ADVISE_ANSWER + i);
	}
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	keep_sight();
	/* not by a path: the container has none to it */
	syscall(SYS_execveat, program, "", argv, command->environment, AT_EMPTY_PATH);
	_exit(1);
}

/* Start ce-advise. Return its pid and the descriptor of its answer; -1 if it cannot be started. */
static pid_t start(const struct ce_advisor *advisor, const struct ce_command *command, const char *found,
		   unsigned wants, int *answer)
{
	char name[] = "ce-advise", number[16], none[] = "";
	size_t count = (size_t)command->argc;
	CE_AUTO_FREE char **argv = calloc(CE_ADVISE_COMMAND + count + 1, sizeof *argv);
	int ends[2];

	if (argv == NULL || advisor->program < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	snprintf(number, sizeof number, "%u", wants);
	argv[0] = name;
	argv[CE_ADVISE_WANTS] = number;
	argv[CE_ADVISE_DIRECTORY] = advisor->named != NULL ? advisor->named : none;
	argv[CE_ADVISE_FOUND] = found != NULL ? (char *)found : none;
	memcpy(argv + CE_ADVISE_COMMAND, command->argv, count * sizeof *argv);
	pid_t child = vfork();
	if (child == 0)
		become(advisor, command, argv, ends[1]);
	close(ends[1]);
	*answer = ends[0];
	return child;
}

/* Read to the end, at most until the deadline. Return the number of bytes; 0 if there is no end, or too
 * much. */
static size_t read_until(int fd, int64_t deadline, char *text, size_t room)
{
	size_t size = 0;

	while (size < room && ce_wait_readable(fd, deadline)) {
		ssize_t more = read(fd, text + size, room - size);
		if (more == 0)
			return size;
		if (more < 0 && errno != EINTR)
			return 0;
		size += more > 0 ? (size_t)more : 0;
	}
	return 0;
}

/* Wait for the end of the child, and kill it at the deadline. One that does not even end then is left
 * behind. */
static void end(pid_t child, int64_t deadline)
{
	CE_AUTO_FD pidfd = ce_pidfd_open(child);

	if (!ce_wait_readable(pidfd, deadline)) {
		kill(child, SIGKILL);
		(void)ce_wait_readable(pidfd, ce_now_ms() + END_MS);
	}
	(void)waitpid(child, NULL, WNOHANG);
}

/* Return whether the string begins as one of an answer does. */
static int is_part(const char *text)
{
	if (text[0] == 'e')
		return strncmp(text + 1, "12", 2) == 0 && text[3] >= '5' && text[3] <= '7';
	return text[0] == 'w' || text[0] == 'm' || text[0] == 'b';
}

/* Return whether the answer is complete, and has nothing but what an answer can have. */
static int is_answer(const char *text, size_t size)
{
	const char *last = text + size - 2;

	if (size < 2 || memcmp(last, ".", 2) != 0)
		return 0;
	while (text < last && is_part(text))
		text += strlen(text) + 1;
	return text == last;
}

/* Ask ce-advise. Return its answer, which is valid until the next call and ends with the string "."; that
 * alone if there is none. */
static const char *ask(const struct ce_advisor *advisor, const struct ce_command *command, const char *found,
		       unsigned wants)
{
	static char text[ANSWER];
	int64_t deadline = ce_now_ms() + LIMIT_MS;
	CE_AUTO_FD answer = -1;
	pid_t child = start(advisor, command, found, wants, &answer);

	if (child < 0)
		return ".";
	size_t size = read_until(answer, deadline, text, sizeof text);
	end(child, size > 0 ? deadline : 0);
	return is_answer(text, size) ? text : ".";
}

/* Take the error from an answer. Return -1 if there is one, else 0. */
static int take_error(const char *text, struct ce_error *err)
{
	int rc = 0;

	for (; text[0] != '.'; text += strlen(text) + 1) {
		if (text[0] == 'e')
			rc = ce_fail_code(err, 120 + text[3] - '0', "%s", text + 4);
		else if (text[0] == 'b')
			err->below = text + 1;
	}
	return rc;
}

/* ---- the check --------------------------------------------------------------------------------- */

/* Report a command that is not found, or may not be executed, in the words for which nobody need be asked. */
static int refuse(const char *command, int reason, struct ce_error *err)
{
	int is_absent = ce_is_absent(reason);

	err->below = is_absent ? CE_HELP_COMMAND_NOT_FOUND : CE_HELP_COMMAND_NOT_EXECUTABLE;
	if (is_absent)
		return ce_fail_code(err, CE_EXIT_NOT_FOUND, "%s: command not found in the container",
				    command[0] != '\0' ? command : "''");
	return ce_fail_code(err, CE_EXIT_NOT_EXECUTABLE, "%s: cannot be executed in the container: %s",
			    command, strerror(reason));
}

int ce_check_command(const struct ce_advisor *advisor, const struct ce_command *command, char **found,
		     struct ce_error *err)
{
	int reason, rc = ce_look_up(value_of(command, "PATH"), command->argv[0], found, &reason);
	unsigned wants = command->wants;

	if (rc < 0)
		return ce_fail(err, "out of memory");
	if (rc > 0 || ce_may_not_start(*found))
		wants |= CE_WANTS_REASON;
	else if (!is_worth_asking(advisor, command, *found))
		return 0;
	const char *answer = ask(advisor, command, *found, wants);
	if (take_error(answer, err) < 0 || (rc > 0 && refuse(command->argv[0], reason, err) < 0)) {
		free(*found);
		*found = NULL;
		return -1;
	}
	for (; answer[0] != '.'; answer += strlen(answer) + 1)
		command->warn(command->context, answer + 1, answer[0] == 'm');
	return 0;
}
