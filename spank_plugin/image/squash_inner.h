/* Internal to the files that implement squash.h. */
#pragma once

#include <pthread.h>
#include <sqfs/compressor.h>
#include <sqfs/frag_table.h>
#include <sqfs/inode.h>
#include <sqfs/io.h>
#include <sqfs/meta_reader.h>
#include <sqfs/super.h>
#include <sqfs/xattr_reader.h>
#include <stdbool.h>

#include "squash.h"
#include "squash_blocks.h"

/* Each metadata reader keeps one uncompressed block of 8 KiB. */
#define READERS 8
/* Inodes are cached as they were read; a file's has 4 bytes for each of its blocks. */
#define KEPT_INODES 512
#define KEPT_INODE_BYTES 4096
#define SUMMED_BLOCKS (KEPT_INODE_BYTES / sizeof(uint32_t))
#define KEPT_LARGE 16
#define LISTINGS 32

struct readers {
	struct {
		sqfs_meta_reader_t *meta;
		uint64_t block; /* its current block */
		uint64_t used;
	} reader[READERS];
	uint64_t uses;
	uint64_t start, end; /* of the table, in the file */
};

struct kept_inode {
	uint64_t inode;
	sqfs_inode_generic_t *facts; /* NULL for none */
	/* for a large file, how many bytes are stored before each block whose number is a multiple of
	 * SUMMED_BLOCKS; NULL for other files, or without memory */
	uint64_t *sums;
};

struct listing;

struct squash {
	sqfs_file_t *file;
	int place;	     /* a descriptor of the file for squash_is_gone, O_PATH */
	struct statx opened; /* what it was when it was opened */
	sqfs_super_t super;
	sqfs_compressor_t *cmp; /* for metadata */
	sqfs_frag_table_t *fragments;
	int has_xattrs;
	struct blocks *blocks;
	pthread_mutex_t lock; /* protects everything below, and the compressor */
	sqfs_xattr_reader_t *xattrs;
	struct readers inodes, directories;
	struct kept_inode small[KEPT_INODES], large[KEPT_LARGE];
	struct listing *listings[LISTINGS];
	uint64_t listing_uses;
	uint64_t asked; /* how many requests have taken this lock */
	struct {
		pthread_t thread;
		pthread_cond_t changed;
		unsigned after_s;
		bool is_running, is_ending;
		bool is_waiting; /* for the next request, with nothing cached */
	} idle;
};

/* Take the lock for a request. */
static inline void squash_enter(struct squash *squash)
{
	pthread_mutex_lock(&squash->lock);
	squash->asked++;
	if (squash->idle.is_waiting) {
		squash->idle.is_waiting = false;
		pthread_cond_signal(&squash->idle.changed);
	}
}

/* Stop the thread of squash_free_when_idle, if there is one. */
void squash_stop_idle_thread(struct squash *squash);

/* ---- with the lock ----------------------------------------------------------------------------- */

/* Read an inode, or take it from the cache. Return 0, or a negative errno. The result is valid until the next
 * call. */
int squash_know(struct squash *squash, uint64_t inode, const struct kept_inode **known);
int squash_facts(struct squash *squash, uint64_t inode, const sqfs_inode_generic_t **facts);

/* Fill in the attributes as squash_stat does, for a caller that holds the lock. */
int squash_stat_locked(struct squash *squash, uint64_t inode, struct stat *st);

/* Return a metadata reader, preferably one that has this block already; NULL without memory. When it has been
 * used, pass libsquashfs's last return value to squash_reader_done: after an error, a reader may take its
 * contents for another block. */
sqfs_meta_reader_t *squash_reader(struct squash *squash, struct readers *readers, uint64_t block);
void squash_reader_done(struct readers *readers, sqfs_meta_reader_t *meta, int error);

/* Open the reader of extended attributes. Return 0, or an error of libsquashfs. */
int squash_open_xattrs(struct squash *squash);

/* Prepare readers for the table between these offsets in the file; each is made when it is first needed. */
void squash_open_readers(struct readers *readers, uint64_t start, uint64_t end);
/* Free all cached readers, inodes, or directories. */
void squash_drop_readers(struct readers *readers);
void squash_drop_inodes(struct squash *squash);
void squash_drop_listings(struct squash *squash);
