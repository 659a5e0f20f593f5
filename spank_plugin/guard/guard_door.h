/* A container that other steps of its job join while it runs, or start again over its files. */
#ifndef CE_GUARD_DOOR_H
#define CE_GUARD_DOOR_H

#include "guard.h"

/* Remember the container (see guard_report_container) for steps that join it later; do nothing for one that ends
 * with its step. Return 0, or -1 after guard_fail. */
int guard_keep_container(struct guard *guard, const int container[], size_t count);

/* Remember where the container's root is mounted, for steps that start another container over its files. */
void guard_keep_root(struct guard *guard, const char *path);

/* Open the door of a kept container, and let others see by the lock that it is ready. A container whose door
 * cannot be opened serves its own step all the same. */
void guard_open_door(struct guard *guard);

/* Answer a process of this user at the door. One packet has the descriptors of our user namespace, of the
 * container's user and mount namespaces, of its environment, of its mountinfo, and of other namespaces of its own;
 * one more for each image has its path and the connection of its server, and one with "." a mount of the
 * container's root, unless another guard has it. */
void guard_answer_door(struct guard *guard);

#endif
