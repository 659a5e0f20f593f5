#define _GNU_SOURCE
#include "srun_options.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "carry.h"
#include "common/io.h"
#include "multi_prog.h"

char *ce_srun_line(size_t *size)
{
	return ce_read_path(AT_FDCWD, "/proc/self/cmdline", 0, 1 << 24, size);
}

/* Return whether a word begins with this text: getopt accepts an unambiguous prefix of an option. */
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

int ce_srun_is_multi_prog(int argc, char *const *argv)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	return has_word(line, size, "--mul") && ce_multi_prog_given(line, size, argc, argv);
}

int ce_srun_broadcasts(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	return getenv("SLURM_BCAST") != NULL || has_word(line, size, "--bc");
}

/* Return whether the word is an option that never has the next word as its value. The list has those that
 * users often give. */
static int is_flag(const char *word)
{
	static const char *const flags[] = { "-E",	     "-H",	     "-O",
					     "-Q",	     "-X",	     "-k",
					     "-l",	     "-s",	     "-u",
					     "-v",	     "--bcast",	     "--contiguous",
					     "--exact",	     "--exclusive",  "--hold",
					     "--label",	     "--multi-prog", "--no-kill",
					     "--overcommit", "--overlap",    "--oversubscribe",
					     "--pty",	     "--quiet",	     "--spread-job",
					     "--unbuffered", "--verbose" };

	for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
		if (strcmp(word, flags[i]) == 0)
			return 1;
	}
	return 0;
}

/* Return whether the next word may be the value of this one: "-n" or "--nodes", not "-n2" or "--nodes=2". */
static int may_take_next(const char *word)
{
	return word[0] == '-' && !is_flag(word) &&
	       (word[1] == '-' ? strchr(word, '=') == NULL : strlen(word) == 2);
}

/* Return the word after this one; NULL at the end. */
static const char *next_word(const char *word, const char *line, size_t size)
{
	const char *next = word + strlen(word) + 1;

	return next < line + size ? next : NULL;
}

/* Return the next option of srun after this word; NULL if the command follows, or nothing. */
static const char *next_option(const char *before, const char *line, size_t size)
{
	const char *word = next_word(before, line, size);

	if (word != NULL && word[0] != '-' && before != line && may_take_next(before))
		word = next_word(word, line, size);
	return word != NULL && word[0] == '-' && strcmp(word, "--") != 0 ? word : NULL;
}

/* Return whether the word is this option. One letter may have its value in the same word. */
static int is_option(const char *word, const char *option)
{
	size_t length = strlen(option);

	return strncmp(word, option, length) == 0 &&
	       (length == 2 || word[length] == '\0' || word[length] == '=');
}

static const char *find_option(const char *line, size_t size, const char *option)
{
	const char *word = line != NULL && size > 0 ? next_option(line, line, size) : NULL;

	while (word != NULL && !is_option(word, option))
		word = next_option(word, line, size);
	return word;
}

void ce_srun_note_options(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	/* getopt accepts "--mp=pmix", too */
	note(CE_CARRY_MPI, getenv("SLURM_MPI_TYPE") != NULL || has_word(line, size, "--mp"));
	note(CE_CARRY_CHDIR,
	     find_option(line, size, "--chdir") != NULL || find_option(line, size, "-D") != NULL);
	note(CE_CARRY_PROLOG, getenv("SLURM_TASK_PROLOG") != NULL || has_word(line, size, "--task-p"));
}

int ce_srun_has_option(const char *option)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	return find_option(line, size, option) != NULL;
}

/* Return whether an option of srun begins with this text. */
static int has_beginning(const char *line, size_t size, const char *beginning)
{
	const char *word = line != NULL && size > 0 ? next_option(line, line, size) : NULL;

	while (word != NULL && strncmp(word, beginning, strlen(beginning)) != 0)
		word = next_option(word, line, size);
	return word != NULL;
}

int ce_srun_is_for_shell(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	return has_beginning(line, size, "--inte") && !has_beginning(line, size, "--env") &&
	       !has_beginning(line, size, "--edf") && !has_beginning(line, size, "--container-");
}

/* Return the next word after which a component begins; NULL if there is none. */
static const char *next_component(const char *before, const char *line, size_t size)
{
	const char *word = next_word(before, line, size);

	while (word != NULL && strcmp(word, ":") != 0)
		word = next_word(word, line, size);
	return word;
}

int ce_srun_may_hide_command(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	return line == NULL || next_component(line, line, size) != NULL || getenv("SLURM_BCAST") != NULL ||
	       has_word(line, size, "--bc") || has_word(line, size, "--as") ||
	       has_word(line, size, "--het") || has_word(line, size, "--pack");
}

int ce_srun_hides_command(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	return getenv("SLURM_BCAST") != NULL || has_beginning(line, size, "--bc") ||
	       has_beginning(line, size, "--as");
}

int ce_srun_may_ask(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);

	return line == NULL || has_word(line, size, "--en") || has_word(line, size, "--ed") ||
	       has_word(line, size, "--cont");
}

int ce_srun_has_prolog(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = ce_srun_line(&size);
	int has = line == NULL;

	for (const char *before = line; before != NULL && !has; before = next_component(before, line, size))
		has = has_beginning(before, (size_t)(line + size - before), "--task-p");
	return has;
}

const char *ce_srun_value(const char *line, size_t size, const char *option)
{
	const char *word = find_option(line, size, option), *value = word != NULL ? strchr(word, '=') : NULL;

	if (word == NULL)
		return NULL;
	return value != NULL ? value + 1 : next_word(word, line, size);
}

const char *ce_srun_command(const char *line, size_t size)
{
	const char *last = line, *word = size > 0 ? next_option(line, line, size) : NULL;

	for (; word != NULL; word = next_option(word, line, size))
		last = word;
	word = size > 0 ? next_word(last, line, size) : NULL;
	if (word != NULL && word[0] != '-' && last != line && may_take_next(last))
		word = next_word(word, line, size);
	return word;
}
