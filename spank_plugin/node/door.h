/* The door of a container that lives with its job: what the guard of a step in it hands to one that joins. */
#ifndef CE_DOOR_H
#define CE_DOOR_H

#include <stddef.h>

#include "common/io.h"
#include "join_memo.h"

/* the descriptors of a packet but the first, which is the guard's */
enum { CE_DOOR_CONTAINER = CE_MAX_FDS - 1, CE_DOOR_IMAGES = 64, CE_DOOR_PATH = 108 };

/* The parts of a container that a guard has handed over (guard/guard_door.h). The descriptors are owned, all close-on-exec. */
struct ce_visit {
	int guards_ns;	   /* the user namespace of that guard */
	int container[CE_DOOR_CONTAINER]; /* its user and mount namespace, environment, mountinfo, other namespaces of its own */
	size_t count;
	char *images[CE_DOOR_IMAGES]; /* paths, on the heap */
	int devices[CE_DOOR_IMAGES];  /* the connections of their servers */
	size_t image_count;
};

enum { CE_AT_ENVIRONMENT = 2, CE_LEAST_CONTAINER = 4 };

/* Ask at the doors of a container one after the other until a guard answers. Return -1 if none does in time, and for every
 * doubt about an answer. Close the visit in either case. */
int ce_door_visit(const char *directory, struct ce_visit *visit);

/* Read a guard's answer up to its last word, without which something is missing, into an empty visit. Return -1 for every
 * doubt. */
int ce_door_read(int visitor, struct ce_visit *visit);

void ce_door_close(struct ce_visit *visit);

#endif
