/* Prints the figures of the servers of a step's images, for the end of its trace. */
#pragma once

/* Return the figures that a guard holds (common/image_figures.h), as elements of a list of JSON, for the
 * caller to free; NULL without memory. Its process may be any of the user's. Runs as the user. */
char *ce_figures_text(long guard);
