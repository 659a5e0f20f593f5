/* The blocks of a SquashFS file that were read last, uncompressed. Threads that want the same block at the same
 * time wait for the one that reads it; others go on. */
#ifndef CE_SQUASH_BLOCKS_H
#define CE_SQUASH_BLOCKS_H

#include <sqfs/compressor.h>
#include <sqfs/io.h>
#include <stdint.h>

struct blocks;
struct block;

/* NULL without memory. Neither the file nor the compressor are its own; the latter is only copied. */
struct blocks *blocks_create(sqfs_file_t *file, sqfs_compressor_t *cmp, uint32_t block_size);
void blocks_destroy(struct blocks *blocks);

/* The block at `position` whose size and form are in `word`, as files and the table of fragments have it; held
 * until blocks_put. 0, or a negative errno. */
int blocks_get(struct blocks *blocks, uint64_t position, uint32_t word, struct block **block);
void blocks_put(struct blocks *blocks, struct block *block);

const uint8_t *block_data(const struct block *block);
uint32_t block_length(const struct block *block);

#endif
