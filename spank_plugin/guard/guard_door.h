/* A container that lives with its job: other steps join it while it runs, or start another one over its
 * files. */
#pragma once

#include "guard.h"

/* Keep the container's descriptors (see guard_report_container) for steps that join it later; do nothing for
 * a container that ends with its step. Return 0, or -1 after guard_fail. */
int guard_keep_container(struct guard *guard, const int container[], size_t count);

/* Remember where the container's root is mounted, for steps that start another container over its files. Do
 * nothing for a container that ends with its step. */
void guard_keep_root(struct guard *guard, const char *path);

/* Open the door of a kept container, and change its lock to a shared one, which shows others that it is
 * ready. If the door cannot be opened, the container serves its own step all the same. */
void guard_open_door(struct guard *guard);

/* Return whether the other end of a socket is a process of this user and group. With another group, a process
 * of this user namespace gets no answers from FUSE. */
int guard_is_own(int visitor);

/* Answer a process of this user that has connected to the door. The first packet has the descriptors of the
 * guard's user namespace and of the container (enum ce_container_fd). Then one for each image has its path
 * and its server's FUSE device, and the one of "." a mount of the container's root, unless another guard has
 * mounted that. A packet of one NUL shows that nothing is missing. */
void guard_answer_door(struct guard *guard);
