#define _GNU_SOURCE
#include "advise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise.h"
#include "common/io.h"
#include "common/program.h"
#include "common/uses_mpi.h"
#include "common/words.h"
#include "generated/help.h"

/* ---- behind another command -------------------------------------------------------------------- */

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

int ce_wraps_mpi(const char *path, const char *found, int argc, char **argv, char name[CE_WORD_SIZE])
{
	char ignored[CE_WORD_SIZE];
	const struct ce_search mpirun = { path, ce_is_mpirun, NULL, ignored };
	const struct ce_search program = { path, ce_uses_mpi, NULL, name };

	/* programs that an mpirun starts learn of the other ranks from it */
	return !behind(&mpirun, found, argc, argv) && behind(&program, found, argc, argv);
}

int ce_wraps_mpirun(const char *path, const char *found, int argc, char **argv, char name[CE_WORD_SIZE])
{
	const struct ce_search search = { path, ce_is_mpirun, chooses_launcher, name };

	/* mpirun itself may be a script that calls another */
	return !ce_is_mpirun(found) && behind(&search, found, argc, argv);
}

/* ---- warnings ---------------------------------------------------------------------------------- */

#define RANKS_ALONE                                                                                \
	" uses MPI, and srun has no --mpi=: each task will be rank 0 of 1 or fail "                \
	"(--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH: ce help mpi)"

#define MPI_REFUSED                                                                                \
	"the program uses MPI, and Slurm's PMIx refuses root, which you are in this container: "   \
	"it compares user numbers (com.ce.root_remap, --container-remap-root)"

#define RANKS_REFUSED                                                                              \
	"Slurm's PMIx refuses root, which you are in this container: MPI fails in MPI_Init "       \
	"(ce help pmix-root)"

static const char *value_of(const struct ce_variables *variables, const char *name)
{
	return variables->get(variables->context, name);
}

static int has_several_tasks(const struct ce_variables *variables)
{
	const char *tasks = value_of(variables, "SLURM_STEP_NUM_TASKS");

	return tasks != NULL && strcmp(tasks, "1") != 0;
}

/* Return whether the step has several tasks, none of which has learned of the others by PMI or PMIx. */
static int is_without_ranks(const struct ce_variables *variables, char **environment)
{
	const char *type = value_of(variables, "SLURM_MPI_TYPE");

	if (!has_several_tasks(variables) || (type != NULL && strcmp(type, "none") != 0) ||
	    environment == NULL)
		return 0;
	for (; *environment != NULL; environment++) {
		if (strncmp(*environment, "PMI", 3) == 0 || strncmp(*environment, "PALS_", 5) == 0)
			return 0;
	}
	return 1;
}

int ce_mpi_refused(const struct ce_variables *variables, const char *found, int chose_mpi,
		   struct ce_mpi_warnings *warnings, struct ce_error *err)
{
	if (ce_uses_mpi(found))
		return ce_fail_below(err, CE_HELP_PMIX_ROOT, MPI_REFUSED);
	if (chose_mpi && has_several_tasks(variables))
		snprintf(warnings->ranks, sizeof warnings->ranks, RANKS_REFUSED);
	return 0;
}

/* Warn if the command, or a program that it starts, uses MPI and each rank will be alone. */
static void warn_of_lone_ranks(const struct ce_variables *variables, char **environment, const char *found,
			       int argc, char **argv, struct ce_mpi_warnings *warnings)
{
	char name[CE_WORD_SIZE];

	if (!is_without_ranks(variables, environment))
		return;
	if (ce_uses_mpi(found))
		snprintf(warnings->ranks, sizeof warnings->ranks, "the program" RANKS_ALONE);
	else if (ce_wraps_mpi(value_of(variables, "PATH"), found, argc, argv, name))
		snprintf(warnings->ranks, sizeof warnings->ranks, "%s" RANKS_ALONE, name);
}

/* Warn if a script or a shell is the command and calls an mpirun that cannot start its processes. Return
 * whether it does. */
static int warn_of_mpirun(const struct ce_variables *variables, const char *found, int argc, char **argv,
			  struct ce_mpi_warnings *warnings)
{
	const char *doubt = ce_doubt_mpirun(variables);
	char name[CE_WORD_SIZE];

	if (doubt == NULL || !ce_wraps_mpirun(value_of(variables, "PATH"), found, argc, argv, name))
		return 0;
	snprintf(warnings->mpirun, sizeof warnings->mpirun, "%s is called in a job of several nodes: %s",
		 name, doubt);
	return 1;
}

void ce_mpi_warn(const struct ce_variables *variables, char **environment, const char *found, int argc,
		 char **argv, struct ce_mpi_warnings *warnings)
{
	if (!ce_lacks_mpi(found, variables, warnings->lacks) &&
	    !warn_of_mpirun(variables, found, argc, argv, warnings))
		warn_of_lone_ranks(variables, environment, found, argc, argv, warnings);
}
