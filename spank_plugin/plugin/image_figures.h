/* Prints the figures of the servers of a step's images, for the end of its trace. */
#pragma once

#include <stdio.h>

/* Print the figures that a guard holds (common/image_figures.h), as elements of a list of JSON. Its process
 * may be any of the user's. Runs as the user. */
void ce_figures_print(FILE *stream, long guard);
