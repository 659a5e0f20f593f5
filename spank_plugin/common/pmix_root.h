/*
 * PMIx of a task whose user is root in the container. Slurm's server knows the user by the number outside:
 * its module "native" compares that with the number that the client sends, and refuses root. The server of
 * PMIx 4.2 then never ends, and neither does slurmstepd, so such a client must not reach the server at all.
 */
#pragma once

#include "join.h"

/* Change the environment of a task whose effective user in the container is `uid`. If that is root, select
 * another module that the server offers, and return 0; if it offers no other, replace the server's addresses,
 * so that a client fails at once, and return 1. Return 0 if the user is not root or the step has no server,
 * -1 if a variable cannot be set. */
int ce_pmix_of_root(unsigned uid, const struct ce_variables *variables);
