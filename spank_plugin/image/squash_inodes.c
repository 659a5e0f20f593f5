#define _GNU_SOURCE
#include <errno.h>
#include <sqfs/block.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "squash_error.h"
#include "squash_inner.h"

#define NOT_THERE UINT64_MAX
#define LONGEST_TARGET 65535

/* ---- readers of metadata ----------------------------------------------------------------------- */

void squash_open_readers(struct readers *readers, uint64_t start, uint64_t end)
{
	readers->start = start;
	readers->end = end;
	for (size_t i = 0; i < READERS; i++)
		readers->reader[i].block = NOT_THERE;
}

sqfs_meta_reader_t *squash_reader(struct squash *squash, struct readers *readers, uint64_t block)
{
	size_t best = 0;

	for (size_t i = 0; i < READERS; i++) {
		if (readers->reader[i].block == block) {
			best = i;
			break;
		}
		if (readers->reader[i].used < readers->reader[best].used)
			best = i;
	}
	readers->reader[best].used = ++readers->uses;
	if (!readers->reader[best].meta)
		readers->reader[best].meta = sqfs_meta_reader_create(squash->file, squash->cmp,
								     readers->start, readers->end);
	return readers->reader[best].meta;
}

static void drop_reader(struct readers *readers, size_t i)
{
	sqfs_destroy(readers->reader[i].meta);
	readers->reader[i].meta = NULL;
	readers->reader[i].block = NOT_THERE;
	readers->reader[i].used = 0;
}

void squash_reader_done(struct readers *readers, sqfs_meta_reader_t *meta, int error)
{
	size_t i = 0, offset;

	while (readers->reader[i].meta != meta)
		i++;
	if (error == 0) {
		sqfs_meta_reader_get_position(meta, &readers->reader[i].block, &offset);
		return;
	}
	drop_reader(readers, i);
}

void squash_drop_readers(struct readers *readers)
{
	for (size_t i = 0; i < READERS; i++)
		drop_reader(readers, i);
}

/* ---- inodes ------------------------------------------------------------------------------------ */

static size_t hash_of(uint64_t inode)
{
	return (inode ^ inode >> 16) * 0x9E3779B97F4A7C15u >> 32;
}

static const struct kept_inode *find_kept(struct squash *squash, uint64_t inode)
{
	const struct kept_inode *places[] = { &squash->small[hash_of(inode) % KEPT_INODES],
					      &squash->large[hash_of(inode) % KEPT_LARGE] };

	for (size_t i = 0; i < 2; i++) {
		if (places[i]->facts && places[i]->inode == inode)
			return places[i];
	}
	return NULL;
}

/* Precompute the sums: otherwise each read would have to add up the sizes of all blocks before it. */
static uint64_t *sum_up(const sqfs_inode_generic_t *facts)
{
	size_t count = sqfs_inode_get_file_block_count(facts);
	uint64_t *sums = calloc(count / SUMMED_BLOCKS + 1, sizeof *sums), bytes = 0;

	if (!sums)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		if (i % SUMMED_BLOCKS == 0)
			sums[i / SUMMED_BLOCKS] = bytes;
		bytes += SQFS_ON_DISK_BLOCK_SIZE(facts->extra[i]);
	}
	return sums;
}

static void forget(struct kept_inode *place)
{
	sqfs_free(place->facts);
	free(place->sums);
	place->facts = NULL;
	place->sums = NULL;
}

/* GCC 12 loses track of a pointer stored at a computed index, and reports a leak. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
static const struct kept_inode *keep(struct squash *squash, uint64_t inode,
				     sqfs_inode_generic_t *facts)
{
	int large = facts->payload_bytes_used > KEPT_INODE_BYTES;
	struct kept_inode *place = large ? &squash->large[hash_of(inode) % KEPT_LARGE] :
					   &squash->small[hash_of(inode) % KEPT_INODES];

	forget(place);
	place->inode = inode;
	place->facts = facts;
	if (large && S_ISREG(facts->base.mode))
		place->sums = sum_up(facts);
	return place;
}
#pragma GCC diagnostic pop

int squash_know(struct squash *squash, uint64_t inode, const struct kept_inode **known)
{
	sqfs_inode_generic_t *read = NULL;
	uint64_t block = squash->super.inode_table_start + (inode >> 16);

	*known = find_kept(squash, inode);
	if (*known)
		return 0;
	sqfs_meta_reader_t *meta = squash_reader(squash, &squash->inodes, block);
	if (!meta)
		return -ENOMEM;
	int rc = sqfs_meta_reader_read_inode(meta, &squash->super, inode >> 16, inode & 0xFFFF,
					     &read);
	squash_reader_done(&squash->inodes, meta, rc);
	if (rc == 0)
		*known = keep(squash, inode, read);
	return squash_errno(rc);
}

int squash_facts(struct squash *squash, uint64_t inode, const sqfs_inode_generic_t **facts)
{
	const struct kept_inode *known;
	int rc = squash_know(squash, inode, &known);

	if (rc == 0)
		*facts = known->facts;
	return rc;
}

void squash_drop_inodes(struct squash *squash)
{
	for (size_t i = 0; i < KEPT_INODES; i++)
		forget(&squash->small[i]);
	for (size_t i = 0; i < KEPT_LARGE; i++)
		forget(&squash->large[i]);
}

static uint32_t links_of(const sqfs_inode_generic_t *facts)
{
	switch (facts->base.type) {
	case SQFS_INODE_FILE:
		return 1;
	case SQFS_INODE_EXT_FILE:
		return facts->data.file_ext.nlink;
	case SQFS_INODE_DIR:
		return facts->data.dir.nlink;
	case SQFS_INODE_EXT_DIR:
		return facts->data.dir_ext.nlink;
	case SQFS_INODE_SLINK:
	case SQFS_INODE_EXT_SLINK:
		return facts->data.slink.nlink;
	default:
		/* devices, pipes and sockets begin with this field */
		return facts->data.dev.nlink;
	}
}

static dev_t device_of(const sqfs_inode_generic_t *facts)
{
	uint32_t number = facts->data.dev.devno;

	return makedev(number >> 8 & 0xFFF, (number & 0xFF) | (number >> 12 & 0xFFF00));
}

static void fill_sizes(const sqfs_inode_generic_t *facts, struct stat *st)
{
	sqfs_u64 size = 0;

	if (S_ISREG(st->st_mode))
		sqfs_inode_get_file_size(facts, &size);
	else if (S_ISLNK(st->st_mode))
		size = facts->data.slink.target_size;
	else if (facts->base.type == SQFS_INODE_DIR)
		size = facts->data.dir.size;
	else if (facts->base.type == SQFS_INODE_EXT_DIR)
		size = facts->data.dir_ext.size;
	else if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		st->st_rdev = device_of(facts);
	st->st_size = (off_t)size;
	st->st_blocks = (blkcnt_t)(size / 512 + (size % 512 != 0));
}

int squash_stat_locked(struct squash *squash, uint64_t inode, struct stat *st)
{
	const sqfs_inode_generic_t *facts;
	int rc = squash_facts(squash, inode, &facts);

	if (rc < 0)
		return rc;
	memset(st, 0, sizeof *st);
	st->st_ino = facts->base.inode_number;
	st->st_mode = facts->base.mode;
	st->st_nlink = links_of(facts);
	st->st_blksize = (blksize_t)squash->super.block_size;
	st->st_mtime = st->st_ctime = st->st_atime = facts->base.mod_time;
	fill_sizes(facts, st);
	return 0;
}

int squash_stat(struct squash *squash, uint64_t inode, struct stat *st)
{
	squash_enter(squash);
	int rc = squash_stat_locked(squash, inode, st);
	pthread_mutex_unlock(&squash->lock);
	return rc;
}

static int link_locked(struct squash *squash, uint64_t inode, char **target)
{
	const sqfs_inode_generic_t *facts;
	int rc = squash_facts(squash, inode, &facts);

	if (rc < 0)
		return rc;
	if (!S_ISLNK(facts->base.mode))
		return -EINVAL;
	if (facts->data.slink.target_size > LONGEST_TARGET)
		return -EIO;
	*target = strndup((const char *)facts->extra, facts->data.slink.target_size);
	return *target ? 0 : -ENOMEM;
}

int squash_link(struct squash *squash, uint64_t inode, char **target)
{
	squash_enter(squash);
	int rc = link_locked(squash, inode, target);
	pthread_mutex_unlock(&squash->lock);
	return rc;
}
