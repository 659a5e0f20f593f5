/* Apptainer's image format: a header, descriptors, and the objects that they describe. */
#pragma once

#include <sqfs/io.h>
#include <stdint.h>

/* Find the file system of the primary system partition. Return NULL, or a static text that says why there is
 * none that can be read here. Its place is within the file; what is in it is not looked at. */
const char *sif_find(sqfs_file_t *file, uint64_t *start, uint64_t *size);
