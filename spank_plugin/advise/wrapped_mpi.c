#define _GNU_SOURCE
#include "wrapped_mpi.h"

#include <stdlib.h>
#include <string.h>

#include "common/io.h"
#include "common/program.h"
#include "common/uses_mpi.h"
#include "common/words.h"
#include "mpirun.h"

static int is_shell(const char *command)
{
	return ce_is_in(CE_SHELLS, ce_base_name(command));
}

static int is_wrapper(const char *command)
{
	return ce_is_in(CE_WRAPPERS, ce_base_name(command));
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

/* Return whether what a shell runs names such a program: the text of -c, also as -lc, or the shell's
 * script. */
static int behind_shell(const struct ce_search *search, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] != '-')
			return ce_in_script(search, argv[i], 1);
		if (argv[i][1] == '-' || strchr(argv[i], 'c') == NULL)
			continue;
		CE_AUTO_FREE char *text = i + 1 < argc ? strdup(argv[i + 1]) : NULL;
		return text != NULL && ce_in_text(search, text);
	}
	return 0;
}

static int behind_wrapper(const struct ce_search *search, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (is_shell(argv[i]))
			return behind_shell(search, argc - i, argv + i);
		if (ce_names_it(search, argv[i]) ||
		    (strchr(argv[i], '/') != NULL && ce_in_script(search, argv[i], 0)))
			return 1;
	}
	return 0;
}

static int behind(const struct ce_search *search, const char *found, int argc, char **argv)
{
	if (is_shell(argv[0]))
		return behind_shell(search, argc, argv);
	if (is_wrapper(argv[0]))
		return behind_wrapper(search, argc, argv);
	return ce_in_script(search, found, 0);
}

int ce_wraps_mpi(const char *path, const char *found, int argc, char **argv, char name[CE_WRAPPED_SIZE])
{
	char ignored[CE_WRAPPED_SIZE];
	const struct ce_search mpirun = { path, ce_is_mpirun, NULL, ignored };
	const struct ce_search program = { path, ce_uses_mpi, NULL, name };

	/* programs that an mpirun starts learn of the other ranks from it */
	return !behind(&mpirun, found, argc, argv) && behind(&program, found, argc, argv);
}

int ce_wraps_mpirun(const char *path, const char *found, int argc, char **argv, char name[CE_WRAPPED_SIZE])
{
	const struct ce_search search = { path, ce_is_mpirun, chooses_launcher, name };

	/* mpirun itself may be a script that calls another */
	return !ce_is_mpirun(found) && behind(&search, found, argc, argv);
}
