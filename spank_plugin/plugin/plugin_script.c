#define _GNU_SOURCE
#include "plugin_script.h"

#include <ctype.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "carry.h"
#include "common/io.h"
#include "common/say.h"
#include "image_holder.h"
#include "plugin_step.h"
#include "script_note.h"
#include "session_end.h"

enum { LIMIT = 1 << 20 };

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

/* The path of the note of this slurmstepd's batch script; "" for none. */
static char note[PATH_MAX];

static int is_batch(spank_t spank)
{
	uint32_t step = 0;

	return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step == SLURM_BATCH_SCRIPT;
}

void ce_script_prepare(spank_t spank, const char *environment)
{
	uint32_t job = 0;
	uid_t uid;

	note[0] = '\0';
	if (environment != NULL && is_batch(spank) &&
	    spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS)
		ce_note_path(uid, job, note);
}

static int is_on_host(spank_t spank)
{
	int is_set = ce_variable(ce_step_environment(spank), CE_SCRIPT_ON_HOST) != NULL;

	if (is_set)
		spank_unsetenv(spank, CE_SCRIPT_ON_HOST);
	return is_set;
}

/* Return the batch script, on the heap; NULL if it cannot be read. */
static char *read_script(spank_t spank)
{
	int argc = 0;
	char **argv = NULL;

	return spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0
		       ? ce_read_path(AT_FDCWD, argv[0], 0, LIMIT, NULL)
		       : NULL;
}

static int has_option(spank_t spank)
{
	CE_AUTO_FREE char *text = read_script(spank);

	return text != NULL &&
	       (strstr(text, "--environment") != NULL || strstr(text, "--container-") != NULL);
}

void ce_script_prepare_holder(spank_t spank, const char *environment)
{
	uid_t uid;
	gid_t gid;

	if (is_batch(spank) && (environment != NULL || has_option(spank)) &&
	    spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_JOB_GID, &gid) == ESPANK_SUCCESS)
		ce_holder_prepare(uid, gid);
}

void ce_script_begin(spank_t spank, const char *environment)
{
	char line[512];

	if (environment == NULL || !is_batch(spank) || is_on_host(spank))
		return;
	CE_AUTO_FREE char *text = read_script(spank);
	/* ce run also uses the environment, and removes no note */
	if (note[0] != '\0' && (text == NULL || !has_word(text, strlen(text), "ce run")))
		ce_note_make(note);
	if (text == NULL || ce_script_starts_steps(text))
		return;
	snprintf(line, sizeof line,
		 "this script has no srun of its own: what is not started through srun, also by a tool "
		 "that it calls, runs on the host, not in '%.256s' (write srun before the commands to run "
		 "inside)",
		 environment);
	ce_say(NULL, "warning", line);
}

static void warn_if_unused(const void *environment)
{
	char line[512];

	if (!ce_note_take(note))
		return;
	snprintf(line, sizeof line,
		 "no srun of this job used '%.256s': all of it ran on the host (write srun before the "
		 "commands to run inside)",
		 (const char *)environment);
	ce_say(NULL, "warning", line);
}

void ce_script_end(spank_t spank, const char *environment)
{
	uid_t uid;
	gid_t gid;

	if (note[0] != '\0' && environment != NULL &&
	    spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_JOB_GID, &gid) == ESPANK_SUCCESS)
		ce_end_as_user(uid, gid, warn_if_unused, environment);
	note[0] = '\0';
}
