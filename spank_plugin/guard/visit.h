/* Asks a guard of a container that lives with its job for what a joining step needs, at the guard's control
 * socket. */
#pragma once

#include <stddef.h>

#include "common/io.h"
#include "common/protocol.h"

/* CE_VISIT_CONTAINER: the most descriptors of the container; the guard's user namespace precedes them in the
 * packet */
enum { CE_VISIT_CONTAINER = CE_MAX_FDS - 1, CE_VISIT_IMAGES = 64, CE_SOCKET_PATH = 108 };

/* The parts of a container that a guard has handed over (guard/guard.h). The descriptors are owned, all
 * close-on-exec. */
struct ce_visit {
	int guards_ns;	   /* the guard's user namespace */
	int container[CE_VISIT_CONTAINER]; /* enum ce_container_fd */
	size_t count;
	char *images[CE_VISIT_IMAGES]; /* paths, on the heap */
	int devices[CE_VISIT_IMAGES];  /* FUSE devices of their servers */
	int figures[CE_VISIT_IMAGES];  /* where these count, or -1 */
	size_t image_count;
};

/* Ask at the control sockets in a container's directory, one after the other, until there is a guard at
 * one. Return 0, or -1 if there is none, if it does not answer in time, and if anything in its answer is
 * doubtful. Call ce_visit_close in either case. */
int ce_visit_guard(const char *directory, struct ce_visit *visit);

/* Read a guard's answer from a socket into an empty visit. Return 0, or -1 if it does not end with the packet
 * of one NUL, which shows that nothing is missing, and if anything else is doubtful. Call ce_visit_close in
 * either case. */
int ce_visit_read(int visitor, struct ce_visit *visit);

/* Close the descriptors, free the paths and make the visit an empty one. */
void ce_visit_close(struct ce_visit *visit);
