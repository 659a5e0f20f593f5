#define _GNU_SOURCE
#include "submit_checks.h"

#include <fcntl.h>
#include <limits.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "common/program.h"
#include "common/say.h"
#include "common/words.h"
#include "generated/help.h"
#include "submit_options.h"

/* A script that is larger is not looked at. */
enum { MOST_OF_SCRIPT = 4 << 20 };

/* Return whether the line has words for several commands: components of a heterogeneous step, or a program
 * with an option --environment of its own. */
static int has_other_commands(const struct ce_line *line)
{
	const char *end = line->text + line->size;

	for (const char *word = line->text + strlen(line->text) + 1; word < end; word += strlen(word) + 1) {
		if (strcmp(word, ":") == 0 || ce_is_in(" ce srun sbatch salloc ", ce_base_name(word)))
			return 1;
	}
	return 0;
}

/* Return whether the word is an option that asks for a container, or says something about it. */
static int is_ours(const char *word)
{
	static const char *const own[] = { "--environment", "--edf" };

	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
		size_t size = strlen(own[i]);
		if (strncmp(word, own[i], size) == 0 && (word[size] == '\0' || word[size] == '='))
			return 1;
	}
	return ce_pyxis_is_option(word);
}

/* Return the first such option at or after a word of the line, which may be NULL; else NULL. */
static const char *option_from(const struct ce_line *line, const char *word)
{
	while (word != NULL && word < line->text + line->size && !is_ours(word))
		word += strlen(word) + 1;
	return word != NULL && word < line->text + line->size ? word : NULL;
}

/* Return the first such option that follows the command, or the script of sbatch, else NULL. */
static const char *late_option(const struct ce_line *line)
{
	return option_from(line, has_other_commands(line) ? NULL : ce_srun_command(line));
}

/* Return the length of the line at `text`, without its newline. */
static size_t line_length(const char *text)
{
	return strcspn(text, "\n");
}

/* Return whether sbatch stops reading options at this line: anything but a comment or nothing. */
static int is_command(const char *line)
{
	size_t blanks = strspn(line, " \t\r\v\f");

	return line[blanks] != '#' && line[blanks] != '\n' && line[blanks] != '\0';
}

/* A line of a script with such an option that sbatch does not read; `number` is 0 for none. */
struct unread {
	int number, is_comment; /* "# SBATCH" */
	char option[128];
};

/* Find the first such option of a line #SBATCH or "# SBATCH". Return whether there is one. */
static int directive_option(const char *line, struct unread *found)
{
	size_t length = line_length(line), at = 1 + strspn(line + 1, " \t");

	found->is_comment = at > 1;
	if (strncmp(line + at, "SBATCH", strlen("SBATCH")) != 0)
		return 0;
	at += strlen("SBATCH");
	while (at < length) {
		at += strspn(line + at, " \t");
		size_t word = strcspn(line + at, " \t\n");
		if (word == 0 || line[at] == '#') /* sbatch takes the rest for a comment, too */
			return 0;
		snprintf(found->option, sizeof found->option, "%.*s", (int)word, line + at);
		if (is_ours(found->option))
			return 1;
		at += word;
	}
	return 0;
}

/* Return the first line with such an option after the first command; else, unless sbatch reads such an option
 * from another line, the first comment that looks like one. A document in the script, which may be another
 * script, ends the search. */
static struct unread unread_directive(const char *script)
{
	struct unread comment = { 0 }, found = { 0 };
	int commands = 0, is_read = 0, in_document = 0;

	while (*script != '\0' && !in_document) {
		size_t length = line_length(script);
		found.number++;
		commands |= is_command(script);
		int has_option = script[0] == '#' && directive_option(script, &found);
		if (has_option && commands && !found.is_comment)
			return found;
		if (has_option && found.is_comment && comment.number == 0)
			comment = found;
		is_read |= has_option && !found.is_comment;
		in_document = memmem(script, length, "<<", 2) != NULL;
		script += length + (script[length] == '\n');
	}
	return is_read ? (struct unread){ 0 } : comment;
}

/* Return the file of sbatch's script, NULL for none. If it is the input, sbatch has read it already: a file
 * can be opened again, whether or not it still has a name; a pipe is empty by now. */
static const char *script_of(const struct ce_line *line)
{
	static const char input[] = "/dev/stdin";
	const char *path = ce_srun_command(line);
	struct stat st;

	if (path != NULL && strcmp(path, "--") == 0)
		path += strlen(path) + 1;
	if (path != NULL && path < line->text + line->size)
		return path;
	int is_file = ce_srun_value(line, "--wrap") == NULL && stat(input, &st) == 0 && S_ISREG(st.st_mode);
	return is_file ? input : NULL;
}

/* Check the script of sbatch. Return whether there is a note. */
static int check_script(const struct ce_line *line, char note[CE_NOTE_SIZE])
{
	const char *path = ce_is_called(line->text, "sbatch") ? script_of(line) : NULL;
	struct unread found = { 0 };

	CE_AUTO_FREE char *script =
		path != NULL ? ce_read_path(AT_FDCWD, path, 0, MOST_OF_SCRIPT, NULL) : NULL;
	if (script != NULL)
		found = unread_directive(script);
	if (found.number == 0 || (found.is_comment && option_from(line, line->text) != NULL))
		return 0;
	snprintf(note, CE_NOTE_SIZE, "%.200s:%d: '#%sSBATCH %s' %s: it selects no container (%s)", path,
		 found.number, found.is_comment ? " " : "", found.option,
		 found.is_comment ? "is a comment, which sbatch does not read"
				  : "comes after the first command, where sbatch reads no more options",
		 found.is_comment ? "remove the blank; ## leaves a line out" : "move the line up");
	return 1;
}

static int is_bundle(const char *directory)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof path, "%s/config.json", directory) < (int)sizeof path &&
	       access(path, F_OK) == 0;
}

/* Return whether the value of --container is the name or the file of an environment: a word without a slash,
 * or a path that ends with .toml. */
static int is_environment(const char *value)
{
	size_t size = strlen(value);

	return size > 0 &&
	       (strchr(value, '/') == NULL || (size > 5 && strcmp(value + size - 5, ".toml") == 0));
}

enum ce_note ce_check_misplaced(const struct ce_line *line, char note[CE_NOTE_SIZE])
{
	const char *late = late_option(line), *container = ce_srun_value(line, "--container");

	if (container != NULL && !is_bundle(container)) {
		snprintf(note, CE_NOTE_SIZE,
			 "--container is an option of Slurm's own, for OCI bundles, which '%.100s' is not: "
			 "write --environment=%.100s to run in that environment",
			 container, container);
		return is_environment(container) ? CE_NOTE_REFUSAL : CE_NOTE_WARNING;
	}
	if (late == NULL)
		return check_script(line, note) ? CE_NOTE_WARNING : CE_NOTE_NONE;
	const char *program = ce_base_name(line->text);
	const char *before = ce_is_called(program, "sbatch") ? "script" : "command";
	snprintf(note, CE_NOTE_SIZE,
		 "%.200s comes after the %s and is passed to it: it selects no container (options of %.16s "
		 "go before the %s)",
		 late, before, program, before);
	return CE_NOTE_WARNING;
}

int ce_submit_check_line(struct ce_error *err)
{
	static int warned;
	char note[CE_NOTE_SIZE];
	CE_AUTO_LINE line = ce_srun_line();
	enum ce_note kind = line.text != NULL ? ce_check_misplaced(&line, note) : CE_NOTE_NONE;

	if (kind == CE_NOTE_REFUSAL)
		return ce_fail_below(err, CE_HELP_CONTAINER_OF_SLURM, "%s", note);
	if (kind == CE_NOTE_WARNING && warned++ == 0)
		ce_say(NULL, "warning", note);
	return 0;
}

void ce_submit_leave_container(int is_step)
{
	static const char *const names[] = { "CE_ENVIRONMENT_NAME", "CE_IMAGE", "CE_IMAGE_DIGEST",
					     "CE_CONTAINER_NAME" };
	const char *name = getenv(names[0]), *image = getenv(names[1]);

	if (is_step && (name != NULL || image != NULL))
		slurm_info("this step runs on the host, not in '%s', where srun was called: "
			   "--environment=NAME runs it in a container",
			   name != NULL ? name : image);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unsetenv(names[i]);
}
