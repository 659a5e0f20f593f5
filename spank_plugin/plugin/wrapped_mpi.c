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
#include "common/mpirun.h"
#include "common/program.h"
#include "common/uses_mpi.h"
#include "common/word_list.h"

/* Wrappers are short; of longer texts only the beginning is read, so that a launch never waits for this. */
enum { MOST_TEXT = 16 * 1024, MOST_WORDS = 256 };

/* Characters that end a word of a shell. Quotes inside a word do, too, but no usual program's name has
 * any. */
#define SEPARATORS " \t\r\n;&|()<>\"'`"

static int is_shell(const char *command)
{
	return ce_is_in(" sh bash dash ash ksh zsh ", ce_base_name(command));
}

/* Return whether the command executes a command among its arguments. */
static int is_wrapper(const char *command)
{
	return ce_is_in(" env nice nohup time timeout setsid stdbuf numactl taskset chrt ionice exec strace "
			 "ltrace perf valgrind gdb catchsegv xvfb-run ",
			 ce_base_name(command));
}

/* Return whether the text of a script chooses another way to start processes than Slurm's srun. */
static int chooses_launcher(const char *text)
{
	static const char *const choices[] = { "-launcher", "-bootstrap", "-rmk",   "HYDRA_", "_MCA_",
					       "--mca",	    "-host",	  "--host", "-H ",    "machinefile" };

	for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
		if (strstr(text, choices[i]) != NULL)
			return 1;
	}
	return 0;
}

/* A search in texts for words that are programs in the task's PATH for which `is` returns true. Texts for
 * which `skips`, if set, returns true are skipped. */
struct search {
	const char *path;
	int (*is)(const char *file);
	int (*skips)(const char *text);
	char *name; /* of CE_WRAPPED_SIZE */
};

static int is_at(const struct search *search, const char *directory, size_t length, const char *word)
{
	char file[PATH_MAX];

	return snprintf(file, sizeof file, "%.*s/%s", (int)length, directory, word) < (int)sizeof file &&
	       access(file, X_OK) == 0 && search->is(file);
}

static int is_found(const struct search *search, const char *word)
{
	const char *path = search->path;

	if (strchr(word, '/') != NULL)
		return access(word, X_OK) == 0 && search->is(word);
	while (path != NULL && *path != '\0') {
		size_t length = strcspn(path, ":");
		if (length > 0 && is_at(search, path, length, word))
			return 1;
		path += length + (path[length] == ':');
	}
	return 0;
}

/* Return whether the word names what is looked for, as a shell would find it, and note its name. */
static int names_it(const struct search *search, const char *word)
{
	if (word[0] == '-' || word[0] == '#' || strpbrk(word, "=$*{}[]\\") != NULL || !is_found(search, word))
		return 0;
	snprintf(search->name, CE_WRAPPED_SIZE, "%s", word);
	return 1;
}

/* Return whether a shell's text names such a program. This changes the text. */
static int in_text(const struct search *search, char *text)
{
	int words = 0;
	char *line_end = NULL, *word_end = NULL;

	if (search->skips != NULL && search->skips(text))
		return 0;
	for (char *line = strtok_r(text, "\n", &line_end); line != NULL;
	     line = strtok_r(NULL, "\n", &line_end)) {
		if (line[strspn(line, " \t")] == '#')
			continue;
		for (char *word = strtok_r(line, SEPARATORS, &word_end); word != NULL && words++ < MOST_WORDS;
		     word = strtok_r(NULL, SEPARATORS, &word_end)) {
			if (names_it(search, word))
				return 1;
		}
	}
	return 0;
}

static int in_script(const struct search *search, const char *file, int has_shell)
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
	return in_text(search, text);
}

/* Return whether what a shell runs names such a program: the text of -c, also as -lc, or the shell's
 * script. */
static int behind_shell(const struct search *search, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] != '-')
			return in_script(search, argv[i], 1);
		if (argv[i][1] == '-' || strchr(argv[i], 'c') == NULL)
			continue;
		CE_AUTO_FREE char *text = i + 1 < argc ? strdup(argv[i + 1]) : NULL;
		return text != NULL && in_text(search, text);
	}
	return 0;
}

static int behind_wrapper(const struct search *search, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (is_shell(argv[i]))
			return behind_shell(search, argc - i, argv + i);
		if (names_it(search, argv[i]) ||
		    (strchr(argv[i], '/') != NULL && in_script(search, argv[i], 0)))
			return 1;
	}
	return 0;
}

static int behind(const struct search *search, const char *found, int argc, char **argv)
{
	if (is_shell(argv[0]))
		return behind_shell(search, argc, argv);
	if (is_wrapper(argv[0]))
		return behind_wrapper(search, argc, argv);
	return in_script(search, found, 0);
}

int ce_wraps_mpi(const char *path, const char *found, int argc, char **argv, char name[CE_WRAPPED_SIZE])
{
	char ignored[CE_WRAPPED_SIZE];
	const struct search mpirun = { path, ce_is_mpirun, NULL, ignored };
	const struct search program = { path, ce_uses_mpi, NULL, name };

	/* programs that an mpirun starts learn of the other ranks from it */
	return !behind(&mpirun, found, argc, argv) && behind(&program, found, argc, argv);
}

int ce_wraps_mpirun(const char *path, const char *found, int argc, char **argv, char name[CE_WRAPPED_SIZE])
{
	const struct search search = { path, ce_is_mpirun, chooses_launcher, name };

	/* mpirun itself may be a script that calls another */
	return !ce_is_mpirun(found) && behind(&search, found, argc, argv);
}
