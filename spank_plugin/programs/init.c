/*
 * ce-init: the container's first process. It holds the namespaces open, reaps what is reparented to it, and
 * does nothing else. Ours and static, so that it works in an image without a shell, without a libc or with
 * another libc. The guard knows that a start is complete when this program's name appears in /proc/PID/comm:
 * only then is /proc/PID/environ that of the container.
 *
 * `ce-init --await PATH` ends when PATH exists: with it, the launcher, which is outside, notices that a
 * service inside is ready.
 *
 * `ce-init --say TEXT PROGRAM ARG…` becomes PROGRAM with a line of TEXT on its standard input: the way to
 * stop a daemon that takes commands there, in an image that has no shell.
 *
 * `ce-init --print NAME` writes that entry of its environment as one line: an answer from any image.
 *
 * `.ce-entry DIR PROGRAM ARG…` becomes PROGRAM, the image's entrypoint, in DIR if that is there, and as
 * root with the filter for root in a container (common/seccomp.h). It is this program by another name,
 * because the guard would take one called ce-init for the first process.
 *
 * `ce-init N` writes its environment to descriptor N, each entry followed by NUL, and ends.
 *
 * `ce-init --startup PROGRAM ARG… N` does so and becomes PROGRAM, with N as its last argument: a shell with
 * the start-up steps of an environment file. `ce-init --changes N WORD…`, which it becomes at their end,
 * replaces what is in the file N by a NUL and what has changed since, as records (common/join.h). Entries
 * that begin with one of the words are left out, those with a word after "+" are not; the first such word
 * decides.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/io.h"
#include "common/program.h"
#include "common/seccomp.h"

enum { MAX_ENVIRONMENT = 64 * 1024 * 1024 };

static int write_environment(int fd)
{
	for (char **entry = environ; *entry != NULL; entry++) {
		if (ce_write_all(fd, *entry, strlen(*entry) + 1) < 0)
			return 1;
	}
	return 0;
}

static void complain(const char *text)
{
	/* a failure of this cannot be reported */
	if (write(2, text, strlen(text)) < 0)
		return;
}

static int become_shell(int fd, char **command)
{
	if (write_environment(fd) == 0)
		execv(command[0], command);
	complain(command[0]);
	complain(": ");
	complain(strerror(errno));
	complain("\n");
	return 127;
}

static int is_left_out(const char *entry, char **words)
{
	for (; *words != NULL; words++) {
		int is_kept = **words == '+';
		if (strncmp(entry, *words + is_kept, strlen(*words + is_kept)) == 0)
			return !is_kept;
	}
	return *entry == '=' || strchr(entry, '=') == NULL;
}

static int has_entry(const char *block, size_t size, const char *wanted)
{
	for (size_t at = 0; at < size; at += strlen(block + at) + 1) {
		if (strcmp(block + at, wanted) == 0)
			return 1;
	}
	return 0;
}

/* Return whether a variable with this name passes through any shell. dash, for one, drops all others without
 * being asked, among them the functions of bash. */
static int is_identifier(const char *name)
{
	static const char characters[] = "0123456789_"
					 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

	return !strchr("0123456789", *name) && name[strspn(name, characters)] == '\0';
}

static int write_changes(int fd, char **left_out)
{
	size_t size = 0;
	CE_AUTO_FREE char *before = ce_read_file_at(fd, MAX_ENVIRONMENT, &size);

	if (before == NULL || ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
	    ce_write_all(fd, "", 1) < 0)
		return 1;
	for (char **entry = environ; *entry != NULL; entry++) {
		if (!has_entry(before, size, *entry) && !is_left_out(*entry, left_out) &&
		    ce_write_all(fd, *entry, strlen(*entry) + 1) < 0)
			return 1;
	}
	for (char *entry = before, *next; entry < before + size; entry = next) {
		next = entry + strlen(entry) + 1;
		if (is_left_out(entry, left_out))
			continue;
		entry[strcspn(entry, "=")] = '\0';
		if (is_identifier(entry) && getenv(entry) == NULL &&
		    ce_write_all(fd, entry, strlen(entry) + 1) < 0)
			return 1;
	}
	return 0;
}

static int await(const char *path)
{
	const struct timespec pause = { .tv_nsec = 5000000 };

	while (access(path, F_OK) != 0)
		nanosleep(&pause, NULL);
	return 0;
}

static int say(const char *text, char **command)
{
	int ends[2];
	size_t length = strlen(text);

	/* a short line fits into a pipe that has no reader yet */
	if (pipe(ends) < 0 || write(ends[1], text, length) != (ssize_t)length ||
	    write(ends[1], "\n", 1) != 1 || dup2(ends[0], 0) < 0)
		return 1;
	close(ends[0]);
	close(ends[1]);
	execv(command[0], command);
	return 127;
}

static int print(const char *name)
{
	size_t length = strlen(name);
	char end[] = "\n";

	for (char **entry = environ; *entry != NULL; entry++) {
		/* srun does not split what is written at once */
		struct iovec line[] = { { *entry, strlen(*entry) }, { end, 1 } };

		if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
			return writev(1, line, 2) < 0;
	}
	return 1;
}

static int become_entrypoint(const char *dir, char **command)
{
	/* A mount may hide the directory. The container's runtime would make it then, in what is mounted. */
	const char *place = chdir(dir) == 0 ? dir : "/";

	if (geteuid() == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || ce_fakeroot() < 0)) {
		complain("cannot install the filter for root in the container\n");
		return CE_EXIT_ENGINE;
	}
	execvp(command[0], command);
	const char *parts[] = { command[0], ": ", strerror(errno), ", started in ", place, "\n" };
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		complain(parts[i]);
	return 127;
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	sigset_t child;
	int received;

	if (argc >= 3 && ce_is_called(argv[0], ".ce-entry"))
		return become_entrypoint(argv[1], argv + 2);
	if (argc == 3 && strcmp(argv[1], "--await") == 0)
		return await(argv[2]);
	if (argc == 3 && strcmp(argv[1], "--print") == 0)
		return print(argv[2]);
	if (argc >= 4 && strcmp(argv[1], "--say") == 0)
		return say(argv[2], argv + 3);
	if (argc >= 4 && strcmp(argv[1], "--startup") == 0)
		return become_shell(atoi(argv[argc - 1]), argv + 2);
	if (argc >= 3 && strcmp(argv[1], "--changes") == 0)
		return write_changes(atoi(argv[2]), argv + 3);
	if (argc == 2)
		return write_environment(atoi(argv[1]));
	/* Process 1 of a PID namespace ignores every signal it has no handler for, so only SIGCHLD needs
	 * attention: it is blocked, and taken by sigwait. */
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	for (;;) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		sigwait(&child, &received);
	}
}
