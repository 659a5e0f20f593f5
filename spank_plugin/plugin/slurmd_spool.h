/* Where slurmd keeps the files of its steps. */
#ifndef CE_SLURMD_SPOOL_H
#define CE_SLURMD_SPOOL_H

#include <stdint.h>

/* SlurmdSpoolDir of the node whose slurmstepd this process is, its %n and %h filled in: a heap string,
 * NULL when it cannot be learnt. */
char *ce_spool_dir(uint32_t job, uint32_t step);

/* The directory that Slurm's PMIx server of this step shares with its clients: a heap string, NULL when
 * there is none, as in all steps but those of `srun --mpi=pmix`. */
char *ce_spool_pmix(uint32_t job, uint32_t step);

#endif
