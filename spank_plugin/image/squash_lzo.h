/* LZO, which libsquashfs lacks and images of other engines use. */
#ifndef CE_SQUASH_LZO_H
#define CE_SQUASH_LZO_H

#include <sqfs/compressor.h>

/* Create a compressor for reading, as sqfs_compressor_create does. */
int squash_lzo(sqfs_compressor_t **compressor);

#endif
