/* Reads all of a SquashFS file, for tests with damaged files. */
#ifndef SQUASH_WALK_H
#define SQUASH_WALK_H

#include "image/squash.h"

/* Read everything that can be read. The results are ignored: the test is that the calls return and that the
 * sanitizers report nothing. */
void squash_ask_all(struct squash *squash);

#endif
