/*
 * The holder of a job's images: a guard in the batch step that mounts and serves images for the job's steps
 * on this node (guard/guard_hold.c). It belongs to the user and to the job, and ends with the batch script.
 */
#ifndef CE_IMAGE_HOLDER_H
#define CE_IMAGE_HOLDER_H

#include <sys/types.h>

#include "config.h"

/* Make the socket by which the holder's end is waited for. In slurmstepd, as root with the user's effective
 * id. Without this, the next two functions do nothing. */
void ce_holder_prepare(uid_t uid, gid_t gid);

/* Start the holder; without one, each step mounts its images itself. Runs as the user, in the batch script's
 * task before it executes the script; the holder is not its child afterwards. */
void ce_holder_start(const struct ce_config *config, char **environment);

/* Wait for the holder's end: Slurm would kill it, and look a second later whether it is gone. In slurmstepd,
 * as root, after the batch script. */
void ce_holder_end(void);

#endif
