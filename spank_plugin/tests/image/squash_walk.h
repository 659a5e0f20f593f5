/* Opens a SquashFS file, and reads all of it, for tests with damaged files. */
#ifndef SQUASH_WALK_H
#define SQUASH_WALK_H

#include "image/squash.h"

/* Open a file and read its tables. Return NULL with the reason in *why if it cannot be read. */
struct squash *squash_open(const char *path, const char **why);

/* Read everything that can be read. The results are ignored: the test is that the calls return and that the
 * sanitizers report nothing. */
void squash_ask_all(struct squash *squash);

#endif
