/*
 * The holder of a job's images: a guard in the batch step that mounts and serves images for the job's steps
 * on this node (guard/guard_hold.c). It belongs to the user and to the job, and ends with the batch script.
 */
#pragma once

#include <sys/types.h>

/* Make the socket by which the holder's end is waited for. In slurmstepd, as root with the user's effective
 * id. Without this, there is no holder. */
void ce_holder_prepare(uid_t uid, gid_t gid);

/* Return the holder's end of that socket; -1 if there is to be no holder. */
int ce_holder_life(void);

/* Wait for the holder's end: Slurm would kill it, and look a second later whether it is gone. In slurmstepd,
 * as root, after the batch script. */
void ce_holder_end(void);
