/* The images of a job: one guard, the holder, which lives as long as the batch script, mounts and serves them
 * for the job's steps on the node, so that a later step finds in the kernel's page cache what an earlier one
 * has read. A step that finds no holder, or one that does not answer, mounts its images itself. */
#ifndef CE_GUARD_HOLD_H
#define CE_GUARD_HOLD_H

#include "guard.h"

/* Enter the user namespace of the holder that the environment names. Return 0, or -1 if there is none. */
int guard_visit_holder(struct guard *guard);

/* Mount an image that the holder serves at the directory `place`. Return 0, or -1 if this guard has to mount
 * the image itself; `place` does not exist then. */
int guard_borrow(struct guard *guard, const char *image, const char *place);

/* Record as a failure that the holder's server of an image has ended. Return -1. */
int guard_lender_ended(struct guard *guard);

/* Let servers go on that somebody has stopped: tasks that wait for one cannot be killed. */
void guard_wake_lenders(const struct guard *guard);

/* In the holder: answer a process of this user that has connected. */
void guard_lend(struct guard *guard);

/* In the holder: unmount an image whose server has ended. */
void guard_forget_image(struct guard *guard, size_t number);

#endif
