/* Finds the directory in which slurmd keeps the files of its steps, and the node's name. */
#pragma once

#include <stdint.h>

/* Return SlurmdSpoolDir of the node whose slurmstepd this process is, with %n and %h filled in, and in *node
 * Slurm's name of it. Both are on the heap, NULL if unknown; the caller frees them. */
char *ce_spool_dir(uint32_t job, uint32_t step, char **node);

/* Return the directory that Slurm's PMIx server of this step shares with its clients, on the heap; the caller
 * frees it. NULL if there is none, as in all steps except those of `srun --mpi=pmix`. */
char *ce_spool_pmix(uint32_t job, uint32_t step);
