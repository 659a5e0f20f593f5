#define _GNU_SOURCE
#include <errno.h>
#include <sqfs/dir.h>
#include <sqfs/super.h>
#include <stdlib.h>
#include <string.h>

#include "squash_error.h"
#include "squash_inner.h"

/* The kernel accepts no longer names. */
#define LONGEST_NAME 255
/* The most names in a directory: a file of one megabyte can claim some hundred million, and all are read
 * before one is found. */
#define MOST_NAMES ((size_t)1 << 22)
/* memory of all cached directories except the one used last */
#define KEPT_LISTING_BYTES ((size_t)128 << 20)

/* Recently used directories are cached as they were read, because names are looked up one by one. */
struct listing {
	uint64_t directory;
	uint64_t used;
	struct name {
		uint64_t inode;
		uint32_t number;
		uint32_t start; /* in `text` */
		uint32_t type;
	} *names;
	size_t count, names_room;
	char *text; /* NUL-terminated names */
	size_t size, text_room;
};

static void free_listing(struct listing *listing)
{
	if (!listing)
		return;
	free(listing->names);
	free(listing->text);
	free(listing);
}

void squash_drop_listings(struct squash *squash)
{
	for (size_t i = 0; i < LISTINGS; i++) {
		free_listing(squash->listings[i]);
		squash->listings[i] = NULL;
	}
}

/* ---- reading one ------------------------------------------------------------------------------- */

static uint32_t mode_of(unsigned type)
{
	switch (type) {
	case SQFS_INODE_DIR:
		return S_IFDIR;
	case SQFS_INODE_FILE:
		return S_IFREG;
	case SQFS_INODE_SLINK:
		return S_IFLNK;
	case SQFS_INODE_BDEV:
		return S_IFBLK;
	case SQFS_INODE_CDEV:
		return S_IFCHR;
	case SQFS_INODE_FIFO:
		return S_IFIFO;
	case SQFS_INODE_SOCKET:
		return S_IFSOCK;
	default:
		return 0;
	}
}

static int is_name(const char *name, size_t length)
{
	return length <= LONGEST_NAME && memchr(name, '/', length) == NULL &&
	       memchr(name, '\0', length) == NULL && !(length == 1 && name[0] == '.') &&
	       !(length == 2 && name[0] == '.' && name[1] == '.');
}

static int make_room(void **array, size_t *room, size_t needed, size_t size)
{
	if (needed <= *room)
		return 0;
	size_t more = needed > 2 * *room ? needed : 2 * *room;
	void *grown = reallocarray(*array, more, size);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = more;
	return 0;
}

static int add(struct listing *listing, const sqfs_dir_entry_t *entry, uint32_t number,
	       uint64_t inode)
{
	size_t length = (size_t)entry->size + 1;

	if (!is_name((const char *)entry->name, length) || listing->size > UINT32_MAX / 2 ||
	    listing->count >= MOST_NAMES)
		return -EIO;
	if (make_room((void **)&listing->names, &listing->names_room, listing->count + 1,
		      sizeof *listing->names) < 0 ||
	    make_room((void **)&listing->text, &listing->text_room, listing->size + length + 1,
		      1) < 0)
		return -ENOMEM;
	listing->names[listing->count++] = (struct name){ .inode = inode,
							  .number = number,
							  .start = (uint32_t)listing->size,
							  .type = mode_of(entry->type) };
	memcpy(listing->text + listing->size, entry->name, length);
	listing->text[listing->size + length] = '\0';
	listing->size += length + 1;
	return 0;
}

/* Read the next entry of a directory. Return 1, 0 at the end, or a negative errno. */
static int read_entry(struct squash *squash, sqfs_readdir_state_t *state, struct listing *listing)
{
	sqfs_dir_entry_t *entry = NULL;
	sqfs_u32 number = 0;
	sqfs_u64 inode = 0;
	sqfs_meta_reader_t *meta = squash_reader(squash, &squash->directories, state->current.block);

	if (!meta)
		return -ENOMEM;
	int rc = sqfs_meta_reader_readdir(meta, state, &entry, &number, &inode);
	squash_reader_done(&squash->directories, meta, rc < 0 ? rc : 0);
	if (rc != 0)
		return squash_errno(rc < 0 ? rc : 0);
	rc = add(listing, entry, number, inode);
	sqfs_free(entry);
	return rc < 0 ? rc : 1;
}

static int compare(const void *a, const void *b, void *text)
{
	const struct name *one = a, *other = b;

	return strcmp((char *)text + one->start, (char *)text + other->start);
}

/* Sort the names: the format requires this order, but the file is not trusted. */
static void sort(struct listing *listing)
{
	for (size_t i = 1; i < listing->count; i++) {
		if (compare(&listing->names[i - 1], &listing->names[i], listing->text) >= 0) {
			qsort_r(listing->names, listing->count, sizeof *listing->names, compare,
				listing->text);
			return;
		}
	}
}

static int read_listing(struct squash *squash, struct listing *listing)
{
	const sqfs_inode_generic_t *facts;
	sqfs_readdir_state_t state;
	int rc = squash_facts(squash, listing->directory, &facts);

	if (rc == 0)
		rc = squash_errno(sqfs_readdir_state_init(&state, &squash->super, facts));
	if (rc < 0)
		return rc;
	while ((rc = read_entry(squash, &state, listing)) > 0)
		;
	sort(listing);
	return rc;
}

/* ---- those that are kept ----------------------------------------------------------------------- */

static struct listing **place_for(struct squash *squash, uint64_t directory)
{
	struct listing **oldest = &squash->listings[0];

	for (size_t i = 0; i < LISTINGS; i++) {
		struct listing *listing = squash->listings[i];
		if (listing && listing->directory == directory)
			return &squash->listings[i];
		if (*oldest && (!listing || listing->used < (*oldest)->used))
			oldest = &squash->listings[i];
	}
	return oldest;
}

static size_t bytes_of(const struct listing *listing)
{
	return listing ? listing->names_room * sizeof *listing->names + listing->text_room : 0;
}

/* Drop all listings if they need too much memory: the cache then starts empty. */
static void make_space(struct squash *squash)
{
	size_t bytes = 0;

	for (size_t i = 0; i < LISTINGS; i++)
		bytes += bytes_of(squash->listings[i]);
	if (bytes > KEPT_LISTING_BYTES)
		squash_drop_listings(squash);
}

static int get_listing(struct squash *squash, uint64_t directory, struct listing **result)
{
	struct listing **place = place_for(squash, directory);

	if (!*place || (*place)->directory != directory) {
		struct listing *fresh = calloc(1, sizeof *fresh);
		if (!fresh)
			return -ENOMEM;
		fresh->directory = directory;
		make_space(squash);
		int rc = read_listing(squash, fresh);
		if (rc < 0) {
			free_listing(fresh);
			return rc;
		}
		free_listing(*place);
		*place = fresh;
	}
	(*place)->used = ++squash->listing_uses;
	*result = *place;
	return 0;
}

/* ---- what others call -------------------------------------------------------------------------- */

static int find(const struct listing *listing, const char *name, uint64_t *found)
{
	size_t from = 0, to = listing->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;
		int order = strcmp(name, listing->text + listing->names[middle].start);
		if (order == 0) {
			*found = listing->names[middle].inode;
			return 0;
		}
		if (order < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return -ENOENT;
}

int squash_lookup(struct squash *squash, uint64_t directory, const char *name, uint64_t *found)
{
	struct listing *listing;

	squash_enter(squash);
	int rc = get_listing(squash, directory, &listing);
	if (rc == 0)
		rc = find(listing, name, found);
	pthread_mutex_unlock(&squash->lock);
	return rc;
}

int squash_list(struct squash *squash, uint64_t directory, size_t first, int with_stat,
		int (*each)(void *context, const struct squash_entry *entry), void *context)
{
	struct listing *listing;
	struct stat st;

	squash_enter(squash);
	int rc = get_listing(squash, directory, &listing);
	for (size_t i = first; rc == 0 && i < listing->count; i++) {
		const struct name *name = &listing->names[i];
		struct squash_entry entry = { .name = listing->text + name->start,
					      .inode = name->inode,
					      .number = name->number,
					      .type = name->type };
		if (with_stat && squash_stat_locked(squash, name->inode, &st) == 0)
			entry.st = &st;
		if (each(context, &entry) != 0)
			break;
	}
	pthread_mutex_unlock(&squash->lock);
	return rc;
}
