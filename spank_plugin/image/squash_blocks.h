/* The cache of recently read blocks of a SquashFS file, uncompressed. Threads that want the same block at the
 * same time wait for the one that reads it; others do not wait. */
#pragma once

#include <sqfs/compressor.h>
#include <sqfs/io.h>
#include <stdint.h>

struct blocks;
struct block;

/* Create a cache; NULL without memory. The file and the compressor stay the caller's;
 * the latter is only copied. */
struct blocks *blocks_create(sqfs_file_t *file, sqfs_compressor_t *cmp, uint32_t block_size);
/* Free the cache, which may be NULL. No block may be held. */
void blocks_destroy(struct blocks *blocks);

/* Get the block at `position`; `word` gives its size and whether it is compressed, as in files and in the
 * fragment table. The caller holds it until blocks_put, and passes there how many of its bytes the kernel has
 * been given: the kernel never asks for them again, so a block of which all bytes have been given is replaced
 * first. Return 0, or a negative errno. */
int blocks_get(struct blocks *blocks, uint64_t position, uint32_t word, struct block **block);
void blocks_put(struct blocks *blocks, struct block *block, uint32_t given);

/* Free the memory of all blocks that nobody holds, and the idle compressors. */
void blocks_give_back(struct blocks *blocks);

/* Return the uncompressed bytes of a held block, and their number. */
const uint8_t *block_data(const struct block *block);
uint32_t block_length(const struct block *block);
