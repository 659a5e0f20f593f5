/*
 * PMIx of a task whose user is root in the container. Slurm's server knows the user by the number outside: its
 * module "native" compares that with the one that the client says, and refuses root. PMIx 4.2 then never ends the
 * server, and slurmstepd with it, so such a client must not come to the server at all.
 */
#ifndef CE_PMIX_ROOT_H
#define CE_PMIX_ROOT_H

#include "join.h"

#define CE_PMIX_ROOT                                                                             \
	"uses MPI, and Slurm's PMIx refuses root, which you are in this container: it compares " \
	"user numbers (com.ce.root_remap, --container-remap-root)"

/* Change the environment of a task that has this effective user in the container: select another module that the
 * server offers, and return 0; if there is none, remove the server's address, so that a client fails at once, and
 * return 1. Return 0 if the user is not root or the step has no server, -1 if a variable cannot be set. */
int ce_pmix_of_root(unsigned uid, const struct ce_variables *variables);

#endif
