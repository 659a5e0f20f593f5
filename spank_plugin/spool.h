/* Where slurmd keeps the files of its steps. */
#ifndef CE_SPOOL_H
#define CE_SPOOL_H

#include <stdint.h>

/* SlurmdSpoolDir of the node whose slurmstepd this process is, its %n and %h filled in: a heap string,
 * NULL when it cannot be learnt. */
char *ce_spool_dir(uint32_t job, uint32_t step);

#endif
