#define _GNU_SOURCE
#include <errno.h>
#include <sqfs/block.h>
#include <stdlib.h>

#include "squash_inner.h"

#define NO_FRAGMENT UINT32_MAX

/* The place of a part of a file's data in the image. */
struct squash_hold {
	uint64_t position;
	uint32_t word;	       /* 0: a hole of zeros, not stored */
	uint32_t from, length; /* within the block, uncompressed */
	struct block *block;   /* held; NULL before it is read, or for a hole */
};

/* The properties of an inode that are needed to read its data. */
struct file {
	const sqfs_inode_generic_t *facts;
	const uint64_t *sums;
	uint64_t size, start;
	uint32_t fragment, fragment_from;
	uint32_t blocks, block_size;
};

static int open_file(struct squash *squash, uint64_t inode, struct file *file)
{
	const struct kept_inode *known;
	int rc = squash_know(squash, inode, &known);

	if (rc < 0)
		return rc;
	file->facts = known->facts;
	file->sums = known->sums;
	if (!S_ISREG(file->facts->base.mode))
		return S_ISDIR(file->facts->base.mode) ? -EISDIR : -EINVAL;
	sqfs_inode_get_file_size(file->facts, &file->size);
	sqfs_inode_get_file_block_start(file->facts, &file->start);
	sqfs_inode_get_frag_location(file->facts, &file->fragment, &file->fragment_from);
	file->blocks = (uint32_t)sqfs_inode_get_file_block_count(file->facts);
	file->block_size = squash->super.block_size;
	return 0;
}

/* ---- which parts, with the lock ---------------------------------------------------------------- */

static int place_fragment(struct squash *squash, const struct file *file, uint32_t within,
			  struct squash_hold *hold)
{
	sqfs_fragment_t fragment;

	if (file->fragment == NO_FRAGMENT ||
	    sqfs_frag_table_lookup(squash->fragments, file->fragment, &fragment) != 0)
		return -EIO;
	if (SQFS_IS_SPARSE_BLOCK(fragment.size) || file->fragment_from > file->block_size)
		return -EIO;
	hold->position = fragment.start_offset;
	hold->word = fragment.size;
	hold->from = file->fragment_from + within;
	return 0;
}

static int place(struct squash *squash, const struct file *file, uint64_t offset, uint64_t *before,
		 struct squash_hold *hold)
{
	uint32_t index = (uint32_t)(offset / file->block_size);
	uint32_t within = (uint32_t)(offset % file->block_size);

	if (index > file->blocks)
		return -EIO;
	if (index == file->blocks)
		return place_fragment(squash, file, within, hold);
	hold->position = file->start + *before;
	hold->word = file->facts->extra[index];
	hold->from = within;
	*before += SQFS_ON_DISK_BLOCK_SIZE(hold->word);
	if (SQFS_IS_SPARSE_BLOCK(hold->word))
		hold->word = 0;
	return 0;
}

/* Return how many bytes of the file are stored before the block at this offset. */
static uint64_t stored_before(const struct file *file, uint64_t offset)
{
	uint64_t bytes = 0, i = 0, index = offset / file->block_size;

	if (file->sums && index < file->blocks) {
		bytes = file->sums[index / SUMMED_BLOCKS];
		i = index - index % SUMMED_BLOCKS;
	}
	for (; i < index && i < file->blocks; i++)
		bytes += SQFS_ON_DISK_BLOCK_SIZE(file->facts->extra[i]);
	return bytes;
}

static int plan(struct squash *squash, uint64_t inode, uint64_t offset, size_t size,
		struct squash_piece *piece)
{
	struct file file;
	int rc = open_file(squash, inode, &file);

	if (rc < 0)
		return rc;
	if (offset >= file.size || size == 0)
		return 0;
	if (size > file.size - offset)
		size = file.size - offset;
	size_t most = size / file.block_size + 2;
	piece->holds = calloc(most, sizeof *piece->holds);
	piece->parts = calloc(most, sizeof *piece->parts);
	if (!piece->holds || !piece->parts)
		return -ENOMEM;
	uint64_t before = stored_before(&file, offset);
	while (size > 0) {
		struct squash_hold *hold = &piece->holds[piece->count];
		uint32_t rest = file.block_size - (uint32_t)(offset % file.block_size);
		hold->length = size < rest ? (uint32_t)size : rest;
		rc = place(squash, &file, offset, &before, hold);
		if (rc < 0)
			return rc;
		piece->count++;
		offset += hold->length;
		size -= hold->length;
	}
	return 0;
}

/* ---- their bytes, without it ------------------------------------------------------------------- */

static int share_zeros(struct squash *squash, struct squash_piece *piece, struct iovec *part)
{
	if (!piece->zeros)
		piece->zeros = calloc(1, squash->super.block_size);
	part->iov_base = piece->zeros;
	return piece->zeros ? 0 : -ENOMEM;
}

static int fetch_part(struct squash *squash, struct squash_piece *piece, int i)
{
	struct squash_hold *hold = &piece->holds[i];
	struct iovec *part = &piece->parts[i];

	part->iov_len = hold->length;
	if (hold->word == 0)
		return share_zeros(squash, piece, part);
	int rc = blocks_get(squash->blocks, hold->position, hold->word, &hold->block);
	if (rc < 0) {
		hold->block = NULL;
		return rc;
	}
	if ((uint64_t)hold->from + hold->length > block_length(hold->block))
		return -EIO;
	part->iov_base = (uint8_t *)block_data(hold->block) + hold->from;
	return 0;
}

int squash_read(struct squash *squash, uint64_t inode, uint64_t offset, size_t size,
		struct squash_piece *piece)
{
	*piece = (struct squash_piece){ .count = 0 };
	squash_enter(squash);
	int rc = plan(squash, inode, offset, size, piece);
	pthread_mutex_unlock(&squash->lock);
	for (int i = 0; rc == 0 && i < piece->count; i++)
		rc = fetch_part(squash, piece, i);
	if (rc < 0)
		squash_release(squash, piece);
	return rc;
}

void squash_release(struct squash *squash, struct squash_piece *piece)
{
	for (int i = 0; i < piece->count; i++) {
		if (piece->holds[i].block)
			blocks_put(squash->blocks, piece->holds[i].block, piece->holds[i].length);
	}
	free(piece->zeros);
	free(piece->holds);
	free(piece->parts);
	*piece = (struct squash_piece){ .count = 0 };
}
