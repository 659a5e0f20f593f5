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
