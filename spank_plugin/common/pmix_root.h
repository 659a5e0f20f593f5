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

/* For the environment of a task with this effective user in the container: let the client use another module
 * that the server offers, and return 0; if there is none, take the server's address away, so that a client fails at
 * once, and return 1. Return 0 for who is not root, or has no server, and -1 if a variable cannot be set. */
int ce_pmix_of_root(unsigned uid, const struct ce_variables *variables);

#endif
