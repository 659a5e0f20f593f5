#define _GNU_SOURCE
#include "wrapped_mpi.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "common/uses_mpi.h"

/* Wrappers are short; of longer texts only the beginning is read, so that a launch never waits for this. */
enum { MOST_TEXT = 16 * 1024, MOST_WORDS = 256 };

/* What ends a word of a shell, but for quotes inside one, which no usual program's name has. */
#define SEPARATORS " \t\r\n;&|()<>\"'`"

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static int is_one_of(const char *words, const char *name)
{
	char word[32];

	return strchr(name, ' ') == NULL && snprintf(word, sizeof word, " %s ", name) < (int)sizeof word &&
	       strstr(words, word) != NULL;
}

static int is_shell(const char *command)
{
	return is_one_of(" sh bash dash ash ksh zsh ", base(command));
}

/* Return whether the command executes a command among its arguments. */
static int is_wrapper(const char *command)
{
	return is_one_of(" env nice nohup time timeout setsid stdbuf numactl taskset chrt ionice exec strace ltrace "
			 "perf valgrind gdb catchsegv xvfb-run ",
			 base(command));
}

static int is_mpi_at(const char *directory, size_t length, const char *word)
{
	char file[PATH_MAX];

	return snprintf(file, sizeof file, "%.*s/%s", (int)length, directory, word) < (int)sizeof file &&
	       access(file, X_OK) == 0 && ce_uses_mpi(file);
}

/* Return whether the word names a program that uses MPI, as a shell would find it. */
static int names_mpi(const char *path, const char *word)
{
	if (word[0] == '-' || word[0] == '#' || strpbrk(word, "=$*{}[]\\") != NULL)
		return 0;
	if (strchr(word, '/') != NULL)
		return access(word, X_OK) == 0 && ce_uses_mpi(word);
	while (path != NULL && *path != '\0') {
		size_t length = strcspn(path, ":");
		if (length > 0 && is_mpi_at(path, length, word))
			return 1;
		path += length + (path[length] == ':');
	}
	return 0;
}

/* Look into a shell's text, which is changed. */
static int in_text(const char *path, char *text, char name[CE_WRAPPED_SIZE])
{
	int words = 0;
	char *line_end = NULL, *word_end = NULL;

	for (char *line = strtok_r(text, "\n", &line_end); line != NULL; line = strtok_r(NULL, "\n", &line_end)) {
		if (line[strspn(line, " \t")] == '#')
			continue;
		for (char *word = strtok_r(line, SEPARATORS, &word_end); word != NULL && words++ < MOST_WORDS;
		     word = strtok_r(NULL, SEPARATORS, &word_end)) {
			if (!names_mpi(path, word))
				continue;
			snprintf(name, CE_WRAPPED_SIZE, "%s", word);
			return 1;
		}
	}
	return 0;
}

static int in_script(const char *path, const char *file, int has_shell, char name[CE_WRAPPED_SIZE])
{
	char text[MOST_TEXT + 1];
	struct stat st;
	/* opening a FIFO would block */
	CE_AUTO_FD fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t size = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, text, MOST_TEXT) : -1;

	if (size < 2 || memchr(text, '\0', (size_t)size) != NULL ||
	    (!has_shell && (text[0] != '#' || text[1] != '!')))
		return 0;
	text[size] = '\0';
	return in_text(path, text, name);
}

/* Look behind a shell: into the text of -c, also as -lc, or into its script. */
static int behind_shell(const char *path, int argc, char **argv, char name[CE_WRAPPED_SIZE])
{
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] != '-')
			return in_script(path, argv[i], 1, name);
		if (argv[i][1] == '-' || strchr(argv[i], 'c') == NULL)
			continue;
		CE_AUTO_FREE char *text = i + 1 < argc ? strdup(argv[i + 1]) : NULL;
		return text != NULL && in_text(path, text, name);
	}
	return 0;
}

static int behind_wrapper(const char *path, int argc, char **argv, char name[CE_WRAPPED_SIZE])
{
	for (int i = 1; i < argc; i++) {
		if (is_shell(argv[i]))
			return behind_shell(path, argc - i, argv + i, name);
		if (!names_mpi(path, argv[i])) {
			if (strchr(argv[i], '/') != NULL && in_script(path, argv[i], 0, name))
				return 1;
			continue;
		}
		snprintf(name, CE_WRAPPED_SIZE, "%s", argv[i]);
		return 1;
	}
	return 0;
}

int ce_wraps_mpi(const char *path, const char *found, int argc, char **argv, char name[CE_WRAPPED_SIZE])
{
	if (is_shell(argv[0]))
		return behind_shell(path, argc, argv, name);
	if (is_wrapper(argv[0]))
		return behind_wrapper(path, argc, argv, name);
	return in_script(path, found, 0, name);
}
