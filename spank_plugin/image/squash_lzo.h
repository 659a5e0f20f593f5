/* LZO, which libsquashfs does not know and other engines' images have. */
#ifndef CE_SQUASH_LZO_H
#define CE_SQUASH_LZO_H

#include <sqfs/compressor.h>

/* As sqfs_compressor_create for a reader. */
int squash_lzo(sqfs_compressor_t **compressor);

#endif
