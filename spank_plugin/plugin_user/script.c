#define _GNU_SOURCE
#include "script.h"

#include <ctype.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>

#include "common/io.h"
#include "common/say.h"
#include "plugin/carry.h"
#include "plugin/plugin_script.h"
#include "plugin/plugin_step.h"

void ce_script_announce(int is_salloc, const char *environment)
{
	static int announced;

	if (announced++ > 0)
		return;
	slurm_info("the %s runs on the host; each srun in it runs in '%s'",
		   is_salloc ? "shell" : "batch script", environment);
}

static int is_of_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* Return whether the line has the word, also after a slash or quote: /usr/bin/srun, "srun". */
static int has_word(const char *line, size_t length, const char *word)
{
	size_t size = strlen(word);

	for (size_t i = 0; i + size <= length; i++) {
		if (strncmp(line + i, word, size) == 0 && (i == 0 || !is_of_word(line[i - 1])) &&
		    (i + size == length || !is_of_word(line[i + size])))
			return 1;
	}
	return 0;
}

int ce_script_starts_steps(const char *text)
{
	static const char *const words[] = { "srun", "mpirun", "mpiexec", "ce run" };

	while (*text != '\0') {
		size_t length = strcspn(text, "\n"), blanks = strspn(text, " \t");

		for (size_t i = 0; text[blanks] != '#' && i < sizeof words / sizeof words[0]; i++) {
			if (has_word(text, length, words[i]))
				return 1;
		}
		text += length + (text[length] == '\n');
	}
	return 0;
}

static int is_on_host(spank_t spank)
{
	int is_set = ce_variable(ce_step_environment(spank), CE_SCRIPT_ON_HOST) != NULL;

	if (is_set)
		spank_unsetenv(spank, CE_SCRIPT_ON_HOST);
	return is_set;
}

void ce_script_begin(spank_t spank, const char *environment)
{
	char line[512];

	if (environment == NULL || !ce_script_is_batch(spank) || is_on_host(spank))
		return;
	CE_AUTO_FREE char *text = ce_script_read(spank);
	/* ce run also uses the environment, and removes no note */
	if (ce_script_note[0] != '\0' && (text == NULL || !has_word(text, strlen(text), "ce run")))
		ce_note_make(ce_script_note);
	if (text == NULL || ce_script_starts_steps(text))
		return;
	snprintf(line, sizeof line,
		 "this script has no srun of its own: what is not started through srun, also by a tool "
		 "that it calls, runs on the host, not in '%.256s' (write srun before the commands to run "
		 "inside)",
		 environment);
	ce_say(NULL, "warning", line);
}
