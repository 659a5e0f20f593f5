#define _GNU_SOURCE
#include "plugin_script.h"

#include <ctype.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "common/say.h"

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

static char *read_script(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t size = 0;

	if (fd < 0)
		return NULL;
	char *text = ce_read_all(fd, LIMIT, &size);
	close(fd);
	return text;
}

void ce_script_warn(spank_t spank, const char *environment)
{
	uint32_t step = 0;
	int argc = 0;
	char **argv = NULL, line[512];

	if (environment == NULL || spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
	    step != SLURM_BATCH_SCRIPT ||
	    spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1)
		return;
	CE_AUTO_FREE char *text = read_script(argv[0]);
	if (text == NULL || ce_script_starts_steps(text))
		return;
	snprintf(line, sizeof line,
		 "this script has no srun: all of it runs on the host, nothing in '%.256s' (write srun before "
		 "the commands to run inside)",
		 environment);
	ce_say(NULL, "warning", line);
}
