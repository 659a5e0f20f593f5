#define _GNU_SOURCE
#include "srun_options.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/io.h"
#include "common/program.h"
#include "common/words.h"
#include "multi_prog.h"
#include "plugin/carry.h"

struct ce_line ce_srun_line(void)
{
	struct ce_line line = { NULL, 0 };

	line.text = ce_read_path(AT_FDCWD, "/proc/self/cmdline", 0, 1 << 24, &line.size);
	return line;
}

void ce_free_line(struct ce_line *line)
{
	free((char *)line->text);
}

/* Return the word after this one; NULL at the end. */
static const char *next_word(const struct ce_line *line, const char *word)
{
	const char *next = word + strlen(word) + 1;

	return next < line->text + line->size ? next : NULL;
}

static int begins_with(const char *word, const char *beginning)
{
	return strncmp(word, beginning, strlen(beginning)) == 0;
}

/* Return whether a word begins with this text: getopt accepts an unambiguous prefix of an option. */
static int has_word(const struct ce_line *line, const char *beginning)
{
	const char *word = line->size > 0 ? line->text : NULL;

	while (word != NULL && !begins_with(word, beginning))
		word = next_word(line, word);
	return word != NULL;
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
	CE_AUTO_LINE line = ce_srun_line();

	return has_word(&line, "--mul") && ce_multi_prog_given(line.text, line.size, argc, argv);
}

int ce_srun_broadcasts(void)
{
	CE_AUTO_LINE line = ce_srun_line();

	return getenv("SLURM_BCAST") != NULL || has_word(&line, "--bc");
}

/* Return whether the word is an option of this command that never has the next word as its value. The lists
 * have those that users often give. */
static int is_flag(const struct ce_line *line, const char *word)
{
	return ce_is_in(" -E -H -O -Q -X -k -l -s -u -v --bcast --contiguous --exact --exclusive --hold "
			"--label --multi-prog --no-kill --overcommit --overlap --oversubscribe --pty --quiet "
			"--spread-job --unbuffered --verbose ",
			word) ||
	       (ce_is_in(" salloc sbatch ", ce_base_name(line->text)) &&
		ce_is_in(" -W --bell --get-user-env --ignore-pbs --no-bell --no-requeue --no-shell "
			 "--parsable --reboot --requeue --test-only --wait ",
			 word));
}

/* Return whether the next word may be the value of this one: "-n" or "--nodes", not "-n2" or "--nodes=2". */
static int may_take_next(const struct ce_line *line, const char *word)
{
	return word[0] == '-' && !is_flag(line, word) &&
	       (word[1] == '-' ? strchr(word, '=') == NULL : strlen(word) == 2);
}

/* Return the word after this option and its value, or after srun itself, the line's first word; NULL at the
 * end. */
static const char *word_after(const struct ce_line *line, const char *option)
{
	const char *word = next_word(line, option);

	if (word != NULL && word[0] != '-' && option != line->text && may_take_next(line, option))
		word = next_word(line, word);
	return word;
}

/* Return the next option of srun after this one; NULL if the command follows, or nothing. */
static const char *next_option(const struct ce_line *line, const char *before)
{
	const char *word = word_after(line, before);

	return word != NULL && word[0] == '-' && strcmp(word, "--") != 0 ? word : NULL;
}

/* Return whether the word is this option. One letter may have its value in the same word. */
static int is_option(const char *word, const char *option)
{
	size_t length = strlen(option);

	return strncmp(word, option, length) == 0 &&
	       (length == 2 || word[length] == '\0' || word[length] == '=');
}

/* Return the first option of srun that `is` takes for the wanted one; NULL if there is none. */
static const char *find(const struct ce_line *line, int (*is)(const char *, const char *), const char *wanted)
{
	const char *word = line->size > 0 ? next_option(line, line->text) : NULL;

	while (word != NULL && !is(word, wanted))
		word = next_option(line, word);
	return word;
}

static int has_option(const struct ce_line *line, const char *option)
{
	return find(line, is_option, option) != NULL;
}

static int has_beginning(const struct ce_line *line, const char *beginning)
{
	return find(line, begins_with, beginning) != NULL;
}

void ce_srun_note_options(void)
{
	CE_AUTO_LINE line = ce_srun_line();

	/* getopt accepts "--mp=pmix", too */
	note(CE_CARRY_MPI, getenv("SLURM_MPI_TYPE") != NULL || has_word(&line, "--mp"));
	note(CE_CARRY_CHDIR, has_option(&line, "--chdir") || has_option(&line, "-D"));
	note(CE_CARRY_PROLOG, getenv("SLURM_TASK_PROLOG") != NULL || has_word(&line, "--task-p"));
	/* as salloc and newer Slurms do: hooks ask for it */
	const char *network = ce_srun_value(&line, "--network");
	if (network != NULL)
		(void)setenv("SLURM_NETWORK", network, 1);
}

int ce_srun_has_option(const char *option)
{
	CE_AUTO_LINE line = ce_srun_line();

	return has_option(&line, option);
}

int ce_srun_is_for_shell(void)
{
	CE_AUTO_LINE line = ce_srun_line();

	return has_beginning(&line, "--inte") && !has_beginning(&line, "--env") &&
	       !has_beginning(&line, "--edf") && !has_beginning(&line, "--container-");
}

/* Return the next word after which a component begins; NULL if there is none. */
static const char *next_component(const struct ce_line *line, const char *before)
{
	const char *word = next_word(line, before);

	while (word != NULL && strcmp(word, ":") != 0)
		word = next_word(line, word);
	return word;
}

int ce_srun_may_hide_command(void)
{
	CE_AUTO_LINE line = ce_srun_line();

	return line.text == NULL || next_component(&line, line.text) != NULL ||
	       getenv("SLURM_BCAST") != NULL || has_word(&line, "--bc") || has_word(&line, "--as") ||
	       has_word(&line, "--het") || has_word(&line, "--pack");
}

int ce_srun_hides_command(void)
{
	CE_AUTO_LINE line = ce_srun_line();

	return getenv("SLURM_BCAST") != NULL || has_beginning(&line, "--bc") || has_beginning(&line, "--as");
}

int ce_srun_may_ask(void)
{
	CE_AUTO_LINE line = ce_srun_line();

	return line.text == NULL || has_word(&line, "--en") || has_word(&line, "--ed") ||
	       has_word(&line, "--cont");
}

int ce_srun_has_prolog(void)
{
	CE_AUTO_LINE line = ce_srun_line();
	int has = line.text == NULL;

	for (const char *begin = line.text; begin != NULL && !has; begin = next_component(&line, begin)) {
		const struct ce_line component = { begin, (size_t)(line.text + line.size - begin) };
		has = has_beginning(&component, "--task-p");
	}
	return has;
}

const char *ce_srun_value(const struct ce_line *line, const char *option)
{
	const char *word = find(line, is_option, option), *value = word != NULL ? strchr(word, '=') : NULL;

	if (word == NULL)
		return NULL;
	return value != NULL ? value + 1 : next_word(line, word);
}

const char *ce_srun_command(const struct ce_line *line)
{
	const char *last = line->text;

	if (line->size == 0)
		return NULL;
	for (const char *word = next_option(line, last); word != NULL; word = next_option(line, word))
		last = word;
	return word_after(line, last);
}
