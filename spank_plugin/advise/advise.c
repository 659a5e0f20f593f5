/*
 * ce-advise: says of a task's command why it cannot be started, and what will go wrong without an error: an
 * MPI whose ranks do not find each other, libraries and directories of the host, a script that is not in the
 * container. Only reads files, and touches nothing.
 *
 * Started by the task in its container (common/advice.h has arguments, descriptors and the answer), as the
 * user. Static: the image may have another libc, and the task's environment may name other libraries.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise.h"
#include "common/advice.h"
#include "common/io.h"
#include "common/program.h"

static const char *get_variable(void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

static const struct ce_variables variables = { NULL, get_variable, NULL };

/* The question, as the arguments put it. */
struct question {
	unsigned wants;
	const char *directory, *found;
	int argc;
	char **argv;
};

static void put(FILE *out, const char *kind, const char *text)
{
	if (text[0] != '\0')
		fprintf(out, "%s%s%c", kind, text, '\0');
}

/* Put a warning if the task starts somewhere else than where srun's --chdir says. */
static void put_other_directory(FILE *out, const char *wanted)
{
	char here[CE_SCRIPT_LINE / 4], line[CE_SCRIPT_LINE];

	if (wanted[0] == '\0' || getcwd(here, sizeof here) == NULL || strcmp(here, wanted) == 0)
		return;
	snprintf(line, sizeof line,
		 "srun's --chdir is for the host: the task starts in '%s', the environment's workdir, not in "
		 "'%.200s' (--container-workdir=DIR replaces the workdir)",
		 here, wanted);
	put(out, "w", line);
}

static void put_warnings(FILE *out, const struct question *q, const struct ce_mpi_warnings *mpi,
			 const char *doubt)
{
	char line[CE_LIBRARY_LINE];

	_Static_assert(sizeof line >= CE_SCRIPT_LINE, "a line has room for each warning");
	if (ce_script_is_elsewhere(q->argc, q->argv, CE_ADVISE_HOST, q->directory, line))
		put(out, "w", line);
	else if ((q->wants & CE_HAS_CHDIR) != 0)
		put_other_directory(out, q->directory);
	put(out, "w", mpi->ranks);
	put(out, "w", mpi->mpirun);
	put(out, "m", mpi->lacks);
	if (ce_find_host_library(CE_ADVISE_RECORDS, &variables, line))
		put(out, "w", line);
	if (ce_find_missing_places(CE_ADVISE_RECORDS, &variables, line))
		put(out, "w", line);
	if (ce_find_full_shared_memory(&variables, line))
		put(out, "w", line);
	put(out, "w", doubt != NULL ? doubt : "");
}

/* Put the warnings. Return 0, or -1 with the error for which the task must not start. */
static int advise(FILE *out, const struct question *q, struct ce_error *err)
{
	struct ce_mpi_warnings mpi = { "", "", "" };
	CE_AUTO_FREE char *checked = NULL;
	const char *found = q->found, *doubt = NULL;

	if ((q->wants & CE_WANTS_REASON) != 0) {
		if (ce_find_command(getenv("PATH"), q->argv[0], &checked, err) < 0) {
			err->below = ce_help_in_job(err->below, getenv("SLURM_JOB_ID"), q->argv);
			return -1;
		}
		found = checked;
	}
	if ((q->wants & CE_IS_REFUSED) != 0 &&
	    ce_mpi_refused(&variables, found, (q->wants & CE_CHOSE_MPI) != 0, &mpi, err) < 0)
		return -1;
	if ((q->wants & CE_WANTS_WARNINGS) == 0)
		return ce_check_mpirun(found, q->argc, q->argv, &variables, &doubt, err);
	if ((q->wants & CE_WANTS_RANKS) != 0)
		ce_mpi_warn(&variables, environ, found, q->argc, q->argv, &mpi);
	else
		(void)ce_lacks_mpi(found, &variables, mpi.lacks);
	if (ce_check_mpirun(found, q->argc, q->argv, &variables, &doubt, err) < 0)
		return -1;
	put_warnings(out, q, &mpi, doubt);
	return 0;
}

static void put_error(FILE *out, const struct ce_error *err)
{
	fprintf(out, "e%03d%s%c", err->exit_code, ce_error_text(err), '\0');
	put(out, "b", ce_error_below(err, ""));
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	if (argc <= CE_ADVISE_COMMAND) {
		fprintf(stderr, "ce-advise: started by the container engine only\n");
		return CE_EXIT_ENGINE;
	}
	const struct question q = { (unsigned)strtoul(argv[CE_ADVISE_WANTS], NULL, 10),
				    argv[CE_ADVISE_DIRECTORY], argv[CE_ADVISE_FOUND],
				    argc - CE_ADVISE_COMMAND, argv + CE_ADVISE_COMMAND };
	struct ce_error err = CE_ERROR_INIT;
	char *answer = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&answer, &size);

	if (out == NULL)
		return 1;
	if (advise(out, &q, &err) < 0)
		put_error(out, &err);
	fprintf(out, ".%c", '\0');
	return fclose(out) == 0 && ce_write_all(CE_ADVISE_ANSWER, answer, size) == 0 ? 0 : 1;
}
