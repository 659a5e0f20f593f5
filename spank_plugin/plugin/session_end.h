/* Ends a session on a node: reports its death, waits for its guard, kills what does not end by itself. */
#pragma once

#include <sys/types.h>

#include "launcher.h"

/* the size of a text that says why a container died */
enum { CE_CAUSE_SIZE = 512 };

/* A session that is being ended. This means: let the launcher finish, warn
 * if the container's space is full, end the session cleanly, wait until the
 * guard is gone, kill it if it stays, kill every process in the container's mount namespace unless other
 * steps may be in it, and wait for what follows (services, OCI hooks). A child that has become the user does
 * all of it: the launcher's answer is untrusted, and the kernel lets users kill only their own processes,
 * whatever descriptors they sent. The parent waits for the child nine seconds at most; if the launcher is to
 * save the container, they begin when its process ends. In slurmstepd, as root, from any thread. */
struct ce_end {
	int child, gate;
};

/* Start that child, and return when it has done its work or its time is over; it holds its copies of the
 * session's sockets until ce_end_finish, which waits for its end and kills it after a second. */
void ce_end_begin(struct ce_end *end, const struct ce_launcher *launcher);
void ce_end_finish(struct ce_end *end);

/* Report to the user why the container died, unless this step has reported it already (say.h); wait a second
 * at most. This, too, runs in a child that has become the user: the directory that records
 * printed messages comes from the user and is untrusted. In slurmstepd, as root, from any thread. */
void ce_end_report(const struct ce_launcher *launcher, const char *cause);

/* Do this work in a child that has become the user; wait a second at most, then kill it. Its stderr is
 * slurmstepd's, which for a batch job is the job's. In slurmstepd, as root. */
void ce_end_as_user(uid_t uid, gid_t gid, void (*work)(const void *), const void *context);

/*
 * The holder of a job's images: a guard in the batch step that mounts and serves images for the job's steps
 * on this node (guard/guard_hold.c). It belongs to the user and to the job, and ends with the batch script.
 */

/* Make the socket by which the holder's end is waited for. In slurmstepd, as root with the user's effective
 * id. Without this, there is no holder. */
void ce_holder_prepare(uid_t uid, gid_t gid);

/* Return the holder's end of that socket; -1 if there is to be no holder. */
int ce_holder_life(void);

/* Wait for the holder's end, four seconds at most, in a child that becomes the user: Slurm would kill it, and
 * look a second later whether it is gone. In slurmstepd, as root, after the batch script. */
void ce_holder_end(void);
