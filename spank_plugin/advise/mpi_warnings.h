/* Tells users, before the command runs, that its MPI ranks will not find each other. */
#pragma once

#include "common/error.h"
#include "common/join.h"
#include "library_check.h"
#include "wrapped_mpi.h"

/* One line each, "" for no warning. */
struct ce_mpi_warnings {
	char ranks[CE_WRAPPED_SIZE + CE_LIBRARY_LINE];
	char mpirun[CE_WRAPPED_SIZE + CE_LIBRARY_LINE];
	char lacks[CE_LIBRARY_LINE]; /* an MPI library that the program does not find */
};

/* For a task that a PMIx server refuses: return -1 and an error if the command, whose file is `found`, uses
 * MPI, else 0. Warn if another command runs as several tasks and the user chose MPI for them with --mpi. */
int ce_mpi_refused(const struct ce_variables *variables, const char *found, int chose_mpi,
		   struct ce_mpi_warnings *warnings, struct ce_error *err);

/* Collect the other warnings about the command, whose file is `found`. `environment` is the task's. */
void ce_mpi_warn(const struct ce_variables *variables, char **environment, const char *found, int argc,
		 char **argv, struct ce_mpi_warnings *warnings);
