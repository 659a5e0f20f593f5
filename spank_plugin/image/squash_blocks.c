#define _GNU_SOURCE
#include "squash_blocks.h"

#include <errno.h>
#include <pthread.h>
#include <sqfs/block.h>
#include <sqfs/error.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/image_figures.h"
#include "squash.h"
#include "squash_error.h"

/* enough for several programs that read here and there at once; small compared with the kernel's page
 * cache */
#define KEPT_BYTES ((size_t)2 << 20)
#define MOST_KEPT 64
#define LEAST_KEPT 4

enum state { EMPTY, FILLING, READY };

struct block {
	uint64_t position;
	uint64_t used; /* when it was last used, by the count of uses of all blocks */
	uint64_t given; /* how many of its bytes have been given away */
	uint8_t *data;	/* NULL for a kept block that has never been filled, or whose memory has been freed */
	uint32_t length;
	unsigned users;
	enum state state;
	bool kept; /* whether it is one of `blocks`, not a temporary one */
};

struct blocks {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	sqfs_file_t *file;
	sqfs_compressor_t *cmp;
	sqfs_compressor_t *idle[MOST_KEPT]; /* copies of cmp that no thread is using */
	size_t idle_count;
	uint64_t uses;
	uint32_t block_size;
	size_t count;
	struct block block[MOST_KEPT];
};

struct blocks *blocks_create(sqfs_file_t *file, sqfs_compressor_t *cmp, uint32_t block_size)
{
	struct blocks *blocks = calloc(1, sizeof *blocks);

	if (!blocks)
		return NULL;
	blocks->file = file;
	blocks->cmp = cmp;
	blocks->block_size = block_size;
	blocks->count = KEPT_BYTES / block_size;
	if (blocks->count > MOST_KEPT)
		blocks->count = MOST_KEPT;
	if (blocks->count < LEAST_KEPT)
		blocks->count = LEAST_KEPT;
	for (size_t i = 0; i < blocks->count; i++)
		blocks->block[i].kept = true;
	pthread_mutex_init(&blocks->lock, NULL);
	pthread_cond_init(&blocks->filled, NULL);
	return blocks;
}

void blocks_destroy(struct blocks *blocks)
{
	if (!blocks)
		return;
	blocks_give_back(blocks);
	pthread_cond_destroy(&blocks->filled);
	pthread_mutex_destroy(&blocks->lock);
	free(blocks);
}

/* ---- reading one, without the lock ------------------------------------------------------------- */

static sqfs_compressor_t *take_compressor(struct blocks *blocks)
{
	sqfs_compressor_t *cmp = NULL;

	pthread_mutex_lock(&blocks->lock);
	if (blocks->idle_count > 0)
		cmp = blocks->idle[--blocks->idle_count];
	pthread_mutex_unlock(&blocks->lock);
	return cmp ? cmp : sqfs_copy(blocks->cmp);
}

static void give_compressor(struct blocks *blocks, sqfs_compressor_t *cmp)
{
	pthread_mutex_lock(&blocks->lock);
	if (blocks->idle_count < MOST_KEPT) {
		blocks->idle[blocks->idle_count++] = cmp;
		cmp = NULL;
	}
	pthread_mutex_unlock(&blocks->lock);
	sqfs_destroy(cmp);
}

static int uncompress(struct blocks *blocks, const uint8_t *packed, uint32_t size,
		      struct block *block)
{
	sqfs_compressor_t *cmp = take_compressor(blocks);

	if (!cmp)
		return -ENOMEM;
	sqfs_s32 length = cmp->do_block(cmp, packed, size, block->data, blocks->block_size);
	give_compressor(blocks, cmp);
	if (length <= 0)
		return length < 0 ? squash_errno(length) : -EIO;
	block->length = (uint32_t)length;
	return 0;
}

/* GCC 12 loses track of a pointer stored in one of an array, and reports a leak. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
static int make_room(const struct blocks *blocks, struct block *block)
{
	if (!block->data)
		block->data = malloc(blocks->block_size);
	return block->data ? 0 : -1;
}
#pragma GCC diagnostic pop

static int fill(struct blocks *blocks, uint32_t word, struct block *block)
{
	uint32_t size = SQFS_ON_DISK_BLOCK_SIZE(word);

	if (size > blocks->block_size)
		return -EIO;
	if (make_room(blocks, block) < 0)
		return -ENOMEM;
	if (!SQFS_IS_BLOCK_COMPRESSED(word)) {
		block->length = size;
		return squash_errno(
			blocks->file->read_at(blocks->file, block->position, block->data, size));
	}
	uint8_t *packed = malloc(size);
	if (!packed)
		return -ENOMEM;
	int rc = squash_errno(blocks->file->read_at(blocks->file, block->position, packed, size));
	if (rc == 0)
		rc = uncompress(blocks, packed, size, block);
	free(packed);
	return rc;
}

/* ---- which are kept ---------------------------------------------------------------------------- */

static struct block *find(struct blocks *blocks, uint64_t position)
{
	for (size_t i = 0; i < blocks->count; i++) {
		struct block *block = &blocks->block[i];
		if (block->state != EMPTY && block->position == position)
			return block;
	}
	return NULL;
}

static struct block *make_loose(const struct blocks *blocks)
{
	struct block *block = malloc(sizeof *block + blocks->block_size);

	if (block)
		*block = (struct block){ .data = (uint8_t *)(block + 1) };
	return block;
}

/* Return whether all of the block has been given to the kernel, which keeps it. */
static bool is_spent(const struct block *block)
{
	return block->state == READY && block->given >= block->length;
}

/* Return a block that has no user: if possible one that is spent, so that no more memory is used than there
 * are partly read blocks; else an empty one; else the least recently used. If all have users, return a
 * temporary one, NULL without memory. */
static struct block *choose(struct blocks *blocks)
{
	struct block *oldest = NULL;

	for (size_t i = 0; i < blocks->count; i++) {
		struct block *block = &blocks->block[i];
		if (block->users > 0)
			continue;
		if (is_spent(block))
			return block;
		if (!oldest || block->used < oldest->used)
			oldest = block;
	}
	return oldest ? oldest : make_loose(blocks);
}

/* Choose a block and begin to fill it; NULL without memory. Call this, and leave, with the lock held. */
static struct block *begin(struct blocks *blocks, uint64_t position)
{
	struct block *block = choose(blocks);

	if (block) {
		block->position = position;
		block->state = FILLING;
		block->users = 1;
		block->given = 0;
		block->used = ++blocks->uses;
	}
	return block;
}

static void leave(struct block *block)
{
	block->users--;
	if (!block->kept)
		free(block);
}

static int read_new(struct blocks *blocks, uint32_t word, struct block *block)
{
	int rc = fill(blocks, word, block);

	pthread_mutex_lock(&blocks->lock);
	/* threads that wait for a block that cannot be read find none, and try themselves */
	block->state = rc == 0 ? READY : EMPTY;
	if (rc < 0)
		leave(block);
	pthread_cond_broadcast(&blocks->filled);
	pthread_mutex_unlock(&blocks->lock);
	return rc;
}

int blocks_get(struct blocks *blocks, uint64_t position, uint32_t word, struct block **result)
{
	struct block *block;

	pthread_mutex_lock(&blocks->lock);
	while ((block = find(blocks, position)) && block->state == FILLING)
		pthread_cond_wait(&blocks->filled, &blocks->lock);
	ce_figure_add(block ? &squash_figures->hits : &squash_figures->misses, 1);
	if (block) {
		block->users++;
		block->used = ++blocks->uses;
		pthread_mutex_unlock(&blocks->lock);
		*result = block;
		return 0;
	}
	block = begin(blocks, position);
	pthread_mutex_unlock(&blocks->lock);
	*result = block;
	return block ? read_new(blocks, word, block) : -ENOMEM;
}

void blocks_put(struct blocks *blocks, struct block *block, uint32_t given)
{
	pthread_mutex_lock(&blocks->lock);
	block->given += given;
	leave(block);
	pthread_mutex_unlock(&blocks->lock);
}

void blocks_give_back(struct blocks *blocks)
{
	pthread_mutex_lock(&blocks->lock);
	for (size_t i = 0; i < blocks->count; i++) {
		struct block *block = &blocks->block[i];
		if (block->users > 0)
			continue;
		free(block->data);
		*block = (struct block){ .kept = true };
	}
	while (blocks->idle_count > 0)
		sqfs_destroy(blocks->idle[--blocks->idle_count]);
	pthread_mutex_unlock(&blocks->lock);
}

const uint8_t *block_data(const struct block *block)
{
	return block->data;
}

uint32_t block_length(const struct block *block)
{
	return block->length;
}
