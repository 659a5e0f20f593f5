#define _GNU_SOURCE
#include "srun_options.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "carry.h"
#include "common/io.h"
#include "multi_prog.h"

/* Return the words of this process's command line, each followed by a NUL, on the heap. NULL on failure. */
static char *command_line(size_t *size)
{
	CE_AUTO_FD fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	return fd >= 0 ? ce_read_all(fd, 1 << 24, size) : NULL;
}

/* Return whether a word begins like this: getopt accepts an unambiguous prefix of an option. */
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

void ce_srun_note_options(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = command_line(&size);

	/* getopt accepts "--mp=pmix", too */
	note(CE_CARRY_MPI, getenv("SLURM_MPI_TYPE") != NULL || has_word(line, size, "--mp"));
	note(CE_CARRY_PROLOG, getenv("SLURM_TASK_PROLOG") != NULL || has_word(line, size, "--task-p"));
}

int ce_srun_is_multi_prog(int argc, char *const *argv)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = command_line(&size);

	return has_word(line, size, "--mul") && ce_multi_prog_given(line, size, argc, argv);
}

int ce_srun_broadcasts(void)
{
	size_t size = 0;
	CE_AUTO_FREE char *line = command_line(&size);

	return getenv("SLURM_BCAST") != NULL || has_word(line, size, "--bc");
}

/* Return whether the next word may be the value of this one: "-n" or "--nodes", not "-n2" or "--nodes=2". */
static int may_take_next(const char *word)
{
	return word[0] == '-' && (word[1] == '-' ? strchr(word, '=') == NULL : strlen(word) == 2);
}

int ce_srun_has_option(const char *option)
{
	size_t size = 0, length = strlen(option);
	CE_AUTO_FREE char *line = command_line(&size);
	const char *before = "--=", *word = line != NULL ? line + strlen(line) + 1 : NULL;

	for (; word != NULL && word < line + size; word += strlen(word) + 1) {
		if (strcmp(word, "--") == 0 || (word[0] != '-' && !may_take_next(before)))
			return 0;
		if (strncmp(word, option, length) == 0 && (word[length] == '\0' || word[length] == '='))
			return 1;
		before = word;
	}
	return 0;
}
