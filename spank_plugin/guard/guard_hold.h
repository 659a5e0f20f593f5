/* The images of a job: one guard, the holder, which lives as long as the batch script, mounts and serves them
 * for the job's steps on the node, so that a later step finds in the kernel's page cache what an earlier one
 * has read. A step that finds no holder, or one that does not answer, mounts its images itself. */
#pragma once

#include <sys/un.h>

#include "guard.h"

/* the request for the holder's user namespace; any other names an image */
#define GUARD_ASK_NAMESPACE ""
#define GUARD_HOST_NS "/proc/self/ns/user"

/* ---- guard_borrow.c: a step ----------------------------------------------------------------- */

/* Enter the user namespace of the job's holder of images. Return 0, or -1 if there is none. */
int guard_visit_holder(struct guard *guard);

/* Mount an image that the holder serves at the directory `place`. Return 0, or -1 if this guard has to mount
 * the image itself; `place` does not exist then. */
int guard_borrow(struct guard *guard, const char *image, const char *place);

/* Record as a failure that the holder's server of an image has ended. Return -1. */
int guard_lender_ended(struct guard *guard);

/* Let servers go on that somebody has stopped: tasks that wait for one cannot be killed. */
void guard_wake_lenders(const struct guard *guard);

/* ---- both ----------------------------------------------------------------------------------- */

/* Return the request for an image, which has the identity of its file as this process sees it, on the heap;
 * NULL if it cannot be made. */
char *guard_describe_image(const char *image);

/* Return the path of the copy of an image in the node's memory, on the heap; NULL if there is none. Its name
 * is the identity of the image's file; one that is not complete has another mode (tools/staging.py). */
char *guard_find_copy(const struct guard *guard, const char *image);

const char *guard_image_path(const char *request);

/* Return a socket and its address; -1 if the name is too long. */
int guard_hold_socket(const char *name, struct sockaddr_un *address, socklen_t *size);

void guard_limit_waiting(int fd);

/* ---- guard_ahead.c -------------------------------------------------------------------------- */

/* Start a thread that records what is read from the image at `place`, and reads ahead what was recorded at an
 * earlier mount. Return the pipe for the server (image_reads.h), which the caller closes; -1 without one. */
int guard_read_ahead(const char *image, const char *place);
