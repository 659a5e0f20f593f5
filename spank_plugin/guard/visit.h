/* Asks a guard of a container that lives with its job for what a joining step needs, at the guard's socket (a
 * door). */
#pragma once

#include <stddef.h>

#include "common/io.h"
#include "common/protocol.h"
#include "step_answers.h"

/* CE_DOOR_CONTAINER: the most descriptors of the container; the guard's user namespace precedes them in the
 * packet */
enum { CE_DOOR_CONTAINER = CE_MAX_FDS - 1, CE_DOOR_IMAGES = 64, CE_DOOR_PATH = 108 };

/* The parts of a container that a guard has handed over (guard/guard.h). The descriptors are owned, all
 * close-on-exec. */
struct ce_visit {
	int guards_ns;	   /* the guard's user namespace */
	int container[CE_DOOR_CONTAINER]; /* enum ce_container_fd */
	size_t count;
	char *images[CE_DOOR_IMAGES]; /* paths, on the heap */
	int devices[CE_DOOR_IMAGES];  /* FUSE devices of their servers */
	size_t image_count;
};

/* Ask at the doors in a container's directory, one after the other, until there is a guard at one. Return 0,
 * or -1 if there is none, if it does not answer in time, and if anything in its answer is doubtful. Call
 * ce_door_close in either case. */
int ce_door_visit(const char *directory, struct ce_visit *visit);

/* Read a guard's answer from a socket into an empty visit. Return 0, or -1 if it does not end with the packet
 * of one NUL, which shows that nothing is missing, and if anything else is doubtful. Call ce_door_close in
 * either case. */
int ce_door_read(int visitor, struct ce_visit *visit);

/* Close the descriptors, free the paths and make the visit an empty one. */
void ce_door_close(struct ce_visit *visit);
