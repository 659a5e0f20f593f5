/*
 * ce-login: the shell that a container's ssh server runs for every login. Static: the image may have
 * another libc, or none.
 *
 *   ce-login [-c COMMAND]    sets the environment of the tasks, then becomes a shell of the image
 *   ce-login --keep FILE     writes its own environment to FILE, each entry followed by NUL
 *   ce-login --shell         prints the shell of this image that SHELL should name
 *   ce-login --files DIR     creates the files on standard input, each as `NAME SIZE`, a NUL and its
 *                            bytes, readable by their owner alone
 *
 * No shell is involved before the user's own, so no value of the environment is ever quoted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/io.h"
#include "common/words.h"

#define JOB "/opt/oci-hooks/ssh/job"
#define SELF "/opt/oci-hooks/ssh/dropbear/libexec/ce-login"
#define SFTP_SERVER "/opt/oci-hooks/ssh/dropbear/libexec/sftp-server"

enum { MAX_SIZE = 16 << 20 };

extern char **environ;

static int fail(const char *what)
{
	dprintf(2, "ce: error: hook ssh: %s: %s\n", what, strerror(errno));
	return CE_EXIT_ENGINE;
}

/* ---- operations for the launcher --------------------------------------------------------------- */

/* Write the environment beside the file and rename it: another login that reads it meanwhile sees the old one
 * or the new one, complete. */
static int keep_environment(const char *path)
{
	char draft[512];

	snprintf(draft, sizeof draft, "%s.new", path);
	int fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(draft);
	for (char **entry = environ; *entry != NULL; entry++) {
		if (ce_write_all(fd, *entry, strlen(*entry) + 1) < 0)
			return fail(draft);
	}
	return rename(draft, path) < 0 ? fail(path) : 0;
}

static int make_file(int dir, const char *name, const char *content, size_t size)
{
	const char *slash = strchr(name, '/');

	if (slash != NULL) {
		char *parent = strndup(name, (size_t)(slash - name));
		if (parent == NULL || (mkdirat(dir, parent, 0700) < 0 && errno != EEXIST))
			return -1;
		free(parent);
	}
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ce_write_all(fd, content, size) < 0)
		return -1;
	return close(fd);
}

static int make_files(const char *directory)
{
	size_t size = 0;
	char *text = ce_read_all(0, MAX_SIZE, &size), *next = text;
	int dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (text == NULL || dir < 0)
		return fail(directory);
	while (next < text + size) {
		char *name = next, *space = strrchr(name, ' ');
		char *content = name + strlen(name) + 1;
		size_t length = space != NULL ? strtoul(space + 1, NULL, 10) : 0;
		if (space == NULL || content + length > text + size)
			break;
		*space = '\0';
		if (make_file(dir, name, content, length) < 0)
			return fail(name);
		next = content + length;
	}
	return 0;
}

/* ---- shells ------------------------------------------------------------------------------------ */

static const char *const shells[] = { "/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh" };

/* Print the user's own shell if the image has it, else another one of the image, else this program. The ssh
 * client runs commands with SHELL, and so do many programs. */
static int print_shell(void)
{
	const char *found = getenv("SHELL");

	if (found == NULL || access(found, X_OK) < 0)
		found = SELF;
	for (size_t i = 0; strcmp(found, SELF) == 0 && i < sizeof shells / sizeof shells[0]; i++) {
		if (access(shells[i], X_OK) == 0)
			found = shells[i];
	}
	return ce_write_all(1, found, strlen(found)) < 0 ? fail("standard output") : 0;
}

/* ---- a login ----------------------------------------------------------------------------------- */

/* Replace the environment with the tasks', but keep the variables of this login. */
static int take_environment(void)
{
	static const char *const of_login[] = { "TERM", "SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT",
						"SSH_AUTH_SOCK", "SSH_ORIGINAL_COMMAND", "DISPLAY" };
	char *kept[sizeof of_login / sizeof of_login[0]] = { NULL };
	size_t size = 0;
	char *text = ce_read_path(AT_FDCWD, JOB "/environment", 0, MAX_SIZE, &size);

	if (text == NULL)
		return fail("the environment of the tasks");
	for (size_t i = 0; i < sizeof of_login / sizeof of_login[0]; i++)
		kept[i] = getenv(of_login[i]);
	clearenv();
	for (char *entry = text; entry < text + size; entry += strlen(entry) + 1) {
		if (putenv(entry) != 0)
			return fail("the environment of the tasks");
	}
	for (size_t i = 0; i < sizeof of_login / sizeof of_login[0]; i++) {
		if (kept[i] != NULL)
			setenv(of_login[i], kept[i], 1);
	}
	return 0;
}

/* Change to the home directory if it exists, as any login does, else to the tasks' directory. */
static void go_home(void)
{
	const char *const places[] = { getenv("HOME"), getenv("PWD"), "/" };

	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		if (places[i] != NULL && chdir(places[i]) == 0) {
			setenv("PWD", places[i], 1);
			break;
		}
	}
	unsetenv("OLDPWD");
}

static void take_umask(void)
{
	const char *mask = getenv("SLURM_UMASK");

	if (mask != NULL && *mask != '\0')
		umask((mode_t)strtoul(mask, NULL, 8) & 0777);
}

static void run_shell(const char *shell, const char *command)
{
	const char *slash = strrchr(shell, '/');
	/* not a login shell: in most images /etc/profile resets PATH */
	const char *const words[] = { slash != NULL ? slash + 1 : shell, command != NULL ? "-c" : NULL,
				      command, NULL };

	if (access(shell, X_OK) == 0)
		execv(shell, (char *const *)words);
}

/* Run a command in an image without any shell, if it has no characters that a shell would interpret. Return
 * the exit code if that fails. */
static int run_words(char *command)
{
	char *words[256];
	size_t count = 0;

	if (command != NULL && strncmp(command, "exec ", 5) == 0)
		command += 5;
	if (command == NULL || command[strspn(command, CE_SHELL_PLAIN " ")] != '\0') {
		dprintf(2, "ce: error: hook ssh: this image has no shell\n");
		return CE_EXIT_NOT_FOUND;
	}
	for (char *word = strtok(command, " "); word != NULL; word = strtok(NULL, " ")) {
		if (count + 1 < sizeof words / sizeof words[0])
			words[count++] = word;
	}
	words[count] = NULL;
	if (count == 0)
		return 0;
	execvp(words[0], words);
	int code = errno == ENOENT ? CE_EXIT_NOT_FOUND : CE_EXIT_NOT_EXECUTABLE;
	fail(words[0]);
	return code;
}

/* Become the sftp server. It gets none of the tasks' environment but a few harmless variables: the image's
 * variables must not decide which libraries it loads. Return if it cannot be executed. */
static void serve_files(void)
{
	static const char *const kept[] = { "HOME", "USER", "LOGNAME", "TZ", "SSH_CONNECTION", "SSH_CLIENT" };
	char *own[sizeof kept / sizeof kept[0] + 1] = { NULL };
	char *words[] = { (char[]){ "sftp-server" }, NULL };
	size_t count = 0;

	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
		const char *value = getenv(kept[i]);
		if (value != NULL && asprintf(&own[count], "%s=%s", kept[i], value) > 0)
			count++;
	}
	own[count] = NULL;
	execve(SFTP_SERVER, words, own);
}

/* Return whether the command is the path of an sftp server and nothing else: that of the subsystem, as the
 * server names it, or one that a client wants (sftp -s PATH). */
static int is_sftp_server(const char *command)
{
	const char *name = command != NULL && command[0] == '/' ? strrchr(command, '/') : NULL;

	return name != NULL && strcmp(name, "/sftp-server") == 0 &&
	       command[strspn(command, CE_SHELL_PLAIN)] == '\0';
}

static int log_in(char *command)
{
	int failed = take_environment();
	const char *own = getenv("SHELL");

	if (failed != 0)
		return failed;
	/* descriptors of the server, such as the host's ptmx */
	close_range(3, ~0U, 0);
	take_umask();
	go_home();
	if (is_sftp_server(command))
		serve_files();
	/* in an image without a shell, SHELL is this program */
	if (own != NULL && own[0] == '/' && strcmp(own, SELF) != 0)
		run_shell(own, command);
	for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
		/* programs that open terminals start what SHELL names */
		if (access(shells[i], X_OK) == 0)
			setenv("SHELL", shells[i], 1);
		run_shell(shells[i], command);
	}
	return run_words(command);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "--keep") == 0)
		return keep_environment(argv[2]);
	if (argc == 2 && strcmp(argv[1], "--shell") == 0)
		return print_shell();
	if (argc == 3 && strcmp(argv[1], "--files") == 0)
		return make_files(argv[2]);
	return log_in(argc >= 3 && strcmp(argv[1], "-c") == 0 ? argv[2] : NULL);
}
