#define _GNU_SOURCE
#include <errno.h>
#include <sqfs/xattr.h>
#include <stdlib.h>
#include <string.h>

#include "common/io.h"
#include "squash_error.h"
#include "squash_inner.h"

#define NO_XATTRS UINT32_MAX
/* the kernel's limit for one value, and for all names */
#define MOST_BYTES 65536
/* The file may claim any number, and a reader would hold the lock for all of them; no kernel has set so
 * many. */
#define MOST_XATTRS 4096
/* The prefix of names that a file system lists only for root. They are not listed here: an overlay that
 * copies a file to write to it takes a listed attribute that it cannot read for an error. */
#define ROOTS "trusted."

int squash_open_xattrs(struct squash *squash)
{
	const sqfs_super_t *super = &squash->super;

	if (super->flags & SQFS_FLAG_NO_XATTRS || super->xattr_id_table_start == UINT64_MAX)
		return 0;
	squash->xattrs = sqfs_xattr_reader_create(0);
	if (!squash->xattrs)
		return SQFS_ERROR_ALLOC;
	squash->has_xattrs = 1;
	return sqfs_xattr_reader_load(squash->xattrs, super, squash->file, squash->cmp);
}

int squash_has_xattrs(const struct squash *squash)
{
	return squash->has_xattrs;
}

/* Move the reader to the first attribute of an inode. Return how many it has, or a negative errno. */
static int64_t seek(struct squash *squash, uint64_t inode)
{
	const sqfs_inode_generic_t *facts;
	sqfs_xattr_id_t found;
	sqfs_u32 index = NO_XATTRS;
	int rc = squash_facts(squash, inode, &facts);

	if (rc < 0)
		return rc;
	if (sqfs_inode_get_xattr_index(facts, &index) != 0 || index == NO_XATTRS || !squash->xattrs)
		return 0;
	rc = sqfs_xattr_reader_get_desc(squash->xattrs, index, &found);
	if (rc == 0 && found.count > MOST_XATTRS)
		return -EIO;
	if (rc == 0 && found.count > 0)
		rc = sqfs_xattr_reader_seek_kv(squash->xattrs, &found);
	return rc == 0 ? (int64_t)found.count : squash_errno(rc);
}

struct wanted {
	const char *name; /* NULL for all names */
	char *bytes;
	size_t size;
};

static int append(struct wanted *wanted, const void *bytes, size_t size)
{
	if (size > MOST_BYTES || wanted->size + size > MOST_BYTES)
		return -E2BIG;
	char *grown = realloc(wanted->bytes, wanted->size + size + 1);
	if (!grown)
		return -ENOMEM;
	memcpy(grown + wanted->size, bytes, size);
	wanted->bytes = grown;
	wanted->size += size;
	grown[wanted->size] = '\0';
	return 0;
}

/* Read the next attribute. Return 1 if it is the wanted one, 0 to go on, or a negative errno. */
static int take(struct squash *squash, struct wanted *wanted)
{
	CE_AUTO_FREE sqfs_xattr_entry_t *key = NULL;
	CE_AUTO_FREE sqfs_xattr_value_t *value = NULL;
	int rc = sqfs_xattr_reader_read_key(squash->xattrs, &key);

	if (rc == 0)
		rc = sqfs_xattr_reader_read_value(squash->xattrs, key, &value);
	if (rc != 0)
		return squash_errno(rc);
	if (value->size > MOST_BYTES)
		return -EIO;
	const char *name = (const char *)key->key;
	if (!wanted->name)
		return strncmp(name, ROOTS, strlen(ROOTS)) == 0 ? 0 : append(wanted, name, strlen(name) + 1);
	if (strcmp(name, wanted->name) != 0)
		return 0;
	rc = append(wanted, value->value, value->size);
	return rc < 0 ? rc : 1;
}

/* Replace the reader: after an error, it may take its contents for another block. */
static void open_anew(struct squash *squash)
{
	sqfs_destroy(squash->xattrs);
	squash->xattrs = NULL;
	if (squash_open_xattrs(squash) == 0)
		return;
	sqfs_destroy(squash->xattrs);
	squash->xattrs = NULL;
}

static int look(struct squash *squash, uint64_t inode, struct wanted *wanted)
{
	squash_enter(squash);
	int64_t left = seek(squash, inode);
	int rc = left < 0 ? (int)left : 0;
	while (rc == 0 && left-- > 0)
		rc = take(squash, wanted);
	if (rc == -EIO)
		open_anew(squash);
	pthread_mutex_unlock(&squash->lock);
	if (rc == 0 && wanted->name)
		rc = -ENODATA;
	if (rc < 0) {
		free(wanted->bytes);
		wanted->bytes = NULL;
	}
	return rc < 0 ? rc : (int)wanted->size;
}

int squash_xattr(struct squash *squash, uint64_t inode, const char *name, char **value)
{
	struct wanted wanted = { .name = name };
	int rc = look(squash, inode, &wanted);

	*value = wanted.bytes;
	return rc;
}

int squash_xattrs(struct squash *squash, uint64_t inode, char **names)
{
	struct wanted wanted = { .name = NULL };
	int rc = look(squash, inode, &wanted);

	*names = wanted.bytes;
	return rc;
}
