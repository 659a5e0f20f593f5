/* Variables by which a job names directories and files to programs. What was right on the host may be wrong
 * in the container. Called there, after the join. */
#pragma once

#include "join.h"

/* Variables that name a directory, a file, or several, without which programs that heed them fail, or do not
 * find what they need. The list ends with NULL. */
extern const char *const ce_naming_variables[];

/* Return whether the directory is mounted: the image's own are on the root's device. */
int ce_is_mounted(const char *directory);

/* Return the value of a search path that comes from the job and names a mounted directory, so may lead to
 * files of the host; else NULL. `records_fd` has the changes to the job's environment (ce_apply_environment).
 */
const char *ce_search_path_of_job(int records_fd, const struct ce_variables *variables, const char *variable);

/* Return the value of a naming variable that comes from the job, if none of its absolute paths is there; else
 * NULL. SHELL counts at a terminal only. */
const char *ce_missing_place(int records_fd, const struct ce_variables *variables, const char *variable);

#define CE_SHARED_MEMORY "/dev/shm"

/* MiB. NCCL takes up to 10 for each channel between two GPUs of a node; 64, Docker's default, is what most
 * reports of its failures there have. */
enum { CE_SHARED_MEMORY_NEEDED = 256 };

/* Return whether shared memory has less room than that, and the MiB that are left of how many: in a container
 * with a GPU, or for a step of several tasks with --mpi. */
int ce_lacks_shared_memory(const struct ce_variables *variables, unsigned long long *left,
			   unsigned long long *all);

/* Return whether there is anything to say of LD_LIBRARY_PATH, PYTHONPATH or a naming variable, perhaps. */
int ce_may_lack_places(int records_fd, const struct ce_variables *variables);
