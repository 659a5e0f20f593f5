/*
 * The image's mpirun within a Slurm step: it starts its processes with Slurm's srun, which images do not
 * have. Hydra (MPICH, Intel MPI) then waits forever, Open MPI ends with "report this to the developers".
 */
#pragma once

#include "common/error.h"
#include "common/join.h"

/* Check the command line, whose program is the file `found`, in the container. Return -1 and an error if it
 * is an mpirun that cannot work there, else 0. If it may not work, set *doubt to a static warning; otherwise
 * leave *doubt unchanged. An mpirun for which the user has chosen another way to start processes is fine, and
 * so is Open MPI's on a single node. */
int ce_check_mpirun(const char *found, int argc, char **argv, const struct ce_variables *variables,
		    const char **doubt, struct ce_error *err);

/* Return whether the file is an mpirun that would use Slurm's srun: of MPICH, Intel MPI or Open MPI. */
int ce_is_mpirun(const char *file);

/* Return a static warning about the mpirun that a script calls in this job, which depends on whether PATH has
 * an srun. Return NULL if the mpirun may work: outside a job, in a job of one node, or where the user has
 * chosen another way to start processes. */
const char *ce_doubt_mpirun(const struct ce_variables *variables);
