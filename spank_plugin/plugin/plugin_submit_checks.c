#define _GNU_SOURCE
#include "plugin_submit_checks.h"

#include <limits.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/help.h"
#include "common/program.h"
#include "common/say.h"
#include "common/word_list.h"

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

/* Return --environment=NAME if it follows the command, else NULL. */
static const char *late_option(const struct ce_line *line)
{
	const char *word = has_other_commands(line) ? NULL : ce_srun_command(line);

	for (; word != NULL && word < line->text + line->size; word += strlen(word) + 1) {
		if (strncmp(word, "--environment=", 14) == 0 || strncmp(word, "--edf=", 6) == 0)
			return word;
	}
	return NULL;
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
		return CE_NOTE_NONE;
	snprintf(note, CE_NOTE_SIZE,
		 "%.200s comes after the command and is passed to it: it selects no container (options of "
		 "srun go before the command)",
		 late);
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
