#include "squash_lzo.h"

#include <lzo/lzo1x.h>
#include <sqfs/error.h>
#include <stdlib.h>
#include <string.h>

static void destroy(sqfs_object_t *object)
{
	free(object);
}

static sqfs_object_t *copy(const sqfs_object_t *object)
{
	sqfs_compressor_t *made = malloc(sizeof *made);

	if (made)
		memcpy(made, object, sizeof *made);
	return (sqfs_object_t *)made;
}

static sqfs_s32 uncompress(sqfs_compressor_t *compressor, const sqfs_u8 *in, sqfs_u32 size,
			   sqfs_u8 *out, sqfs_u32 room)
{
	lzo_uint length = room;

	(void)compressor;
	if (lzo1x_decompress_safe(in, size, out, &length, NULL) != LZO_E_OK)
		return SQFS_ERROR_COMPRESSOR;
	return (sqfs_s32)length;
}

int squash_lzo(sqfs_compressor_t **compressor)
{
	sqfs_compressor_t *made = calloc(1, sizeof *made);

	if (!made)
		return SQFS_ERROR_ALLOC;
	made->base.destroy = destroy;
	made->base.copy = copy;
	made->do_block = uncompress;
	*compressor = made;
	return 0;
}
