/* For tests with damaged files. */
#ifndef SQUASH_WALK_H
#define SQUASH_WALK_H

#include "image/squash.h"

/* Asks all that can be asked of it. What is answered does not matter: that it ends, and the sanitizers' silence do. */
void squash_ask_all(struct squash *squash);

#endif
