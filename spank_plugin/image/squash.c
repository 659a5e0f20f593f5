#define _GNU_SOURCE
#include "squash.h"

#include <errno.h>
#include <fcntl.h>
#include <lzo/lzo1x.h>
#include <sqfs/error.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/image_figures.h"
#include "common/io.h"
#include "sif.h"
#include "squash_inner.h"

static struct ce_figures own_figures;
struct ce_figures *squash_figures = &own_figures;

uint64_t squash_root(const struct squash *squash)
{
	return squash->super.root_inode_ref;
}

void squash_statfs(const struct squash *squash, struct statvfs *st)
{
	const sqfs_super_t *super = &squash->super;

	memset(st, 0, sizeof *st);
	st->f_bsize = st->f_frsize = super->block_size;
	st->f_blocks = (super->bytes_used + super->block_size - 1) / super->block_size;
	st->f_files = super->inode_count;
	st->f_namemax = 256;
}

/* ---- LZO, which libsquashfs lacks and images of other engines use ------------------------------ */

static void free_lzo(sqfs_object_t *object)
{
	free(object);
}

static sqfs_object_t *copy_lzo(const sqfs_object_t *object)
{
	sqfs_compressor_t *made = malloc(sizeof *made);

	if (made)
		memcpy(made, object, sizeof *made);
	return (sqfs_object_t *)made;
}

static sqfs_s32 uncompress_lzo(sqfs_compressor_t *compressor, const sqfs_u8 *in, sqfs_u32 size,
			       sqfs_u8 *out, sqfs_u32 room)
{
	lzo_uint length = room;

	(void)compressor;
	if (lzo1x_decompress_safe(in, size, out, &length, NULL) != LZO_E_OK)
		return SQFS_ERROR_COMPRESSOR;
	return (sqfs_s32)length;
}

/* Create a compressor for reading, as sqfs_compressor_create does. */
static int create_lzo(sqfs_compressor_t **compressor)
{
	sqfs_compressor_t *made = calloc(1, sizeof *made);

	if (!made)
		return SQFS_ERROR_ALLOC;
	made->base.destroy = free_lzo;
	made->base.copy = copy_lzo;
	made->do_block = uncompress_lzo;
	*compressor = made;
	return 0;
}

/* ---- the file, with figures of what is read from it --------------------------------------------- */

/* libsquashfs's function */
static int (*read_uncounted)(sqfs_file_t *file, sqfs_u64 offset, void *buffer, size_t size);

/* the SIF file of this process, if it has one, and the part that is read as SquashFS */
static struct {
	const sqfs_file_t *file;
	uint64_t start, size;
} part;

static int read_counted(sqfs_file_t *file, sqfs_u64 offset, void *buffer, size_t size)
{
	int64_t begin = ce_clock_ns(CLOCK_MONOTONIC);
	bool is_part = file == part.file;

	if (is_part && (offset > part.size || size > part.size - offset))
		return SQFS_ERROR_OUT_OF_BOUNDS;
	int rc = read_uncounted(file, offset + (is_part ? part.start : 0), buffer, size);

	ce_figure_add(&squash_figures->waited_ns, (uint64_t)(ce_clock_ns(CLOCK_MONOTONIC) - begin));
	ce_figure_add(&squash_figures->reads, 1);
	ce_figure_add(&squash_figures->bytes, rc == 0 ? size : 0);
	return rc;
}

static sqfs_file_t *open_counted(const char *path)
{
	sqfs_file_t *file = sqfs_open_file(path, SQFS_FILE_OPEN_READ_ONLY);

	if (!file)
		return NULL;
	read_uncounted = file->read_at;
	file->read_at = read_counted;
	atomic_store(&squash_figures->size, file->get_size(file));
	return file;
}

/* Read the superblock, of a SIF file that of the file system in it. Return NULL, or why that cannot be. */
static const char *read_super(struct squash *squash)
{
	uint64_t start, size = squash->file->get_size(squash->file);

	if (sqfs_super_read(&squash->super, squash->file) != 0) {
		const char *why = sif_find(squash->file, &start, &size);
		if (why)
			return why;
		part.start = start;
		part.size = size;
		part.file = squash->file;
		atomic_store(&squash_figures->size, size);
		if (sqfs_super_read(&squash->super, squash->file) != 0)
			return "a SIF file with a damaged file system";
	}
	return size < squash->super.bytes_used ? "the file is shorter than its file system" : NULL;
}

/* ---- opening and closing ----------------------------------------------------------------------- */

static int open_compressor(struct squash *squash)
{
	sqfs_compressor_config_t config;

	if (squash->super.compression_id == SQFS_COMP_LZO)
		return create_lzo(&squash->cmp);
	int rc = sqfs_compressor_config_init(&config, squash->super.compression_id,
					     squash->super.block_size, SQFS_COMP_FLAG_UNCOMPRESS);

	/* the compressor options in the file matter only for compression */
	return rc ? rc : sqfs_compressor_create(&config, &squash->cmp);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int open_tables(struct squash *squash)
{
	const sqfs_super_t *super = &squash->super;
	uint64_t end = least(super->id_table_start,
			     least(super->fragment_table_start, super->export_table_start));

	/* each fragment takes at least a byte of the file; memory is allocated for all of
	 * them before they are read */
	if (super->fragment_entry_count > super->bytes_used)
		return SQFS_ERROR_CORRUPTED;
	squash_open_readers(&squash->inodes, super->inode_table_start, super->directory_table_start);
	squash_open_readers(&squash->directories, super->directory_table_start, end);
	squash->fragments = sqfs_frag_table_create(0);
	squash->blocks = blocks_create(squash->file, squash->cmp, super->block_size);
	if (!squash->fragments || !squash->blocks)
		return SQFS_ERROR_ALLOC;
	int rc = sqfs_frag_table_read(squash->fragments, squash->file, super, squash->cmp);
	return rc ? rc : squash_open_xattrs(squash);
}

const char *squash_load(struct squash *squash)
{
	struct stat root;
	const char *why = read_super(squash);

	if (why)
		return why;
	if (open_compressor(squash) != 0)
		return "compressed in a way that is not known here";
	if (open_tables(squash) != 0)
		return "its tables cannot be read";
	if (squash_stat(squash, squash_root(squash), &root) < 0 || !S_ISDIR(root.st_mode))
		return "its root directory cannot be read";
	return NULL;
}

static int look(int place, int flags, struct statx *found)
{
	return statx(place, "", AT_EMPTY_PATH | flags, STATX_SIZE | STATX_MTIME, found);
}

/* A failed read does not tell whether the file is gone: for a file that NFS has lost, pread may fail with
 * ESTALE, EIO or EBADF, and a file that was overwritten is read as a damaged one. So ask the server what the
 * file is now. */
int squash_is_gone(const struct squash *squash)
{
	const struct statx *opened = &squash->opened;
	struct statx now;

	if (look(squash->place, AT_STATX_FORCE_SYNC, &now) != 0)
		return errno == ESTALE;
	return now.stx_size != opened->stx_size ||
	       now.stx_mtime.tv_sec != opened->stx_mtime.tv_sec ||
	       now.stx_mtime.tv_nsec != opened->stx_mtime.tv_nsec;
}

struct squash *squash_file(const char *path, const char **why)
{
	struct squash *squash = calloc(1, sizeof *squash);

	if (!squash) {
		*why = strerror(ENOMEM);
		return NULL;
	}
	pthread_mutex_init(&squash->lock, NULL);
	squash->place = open(path, O_PATH | O_CLOEXEC);
	if (squash->place >= 0 && look(squash->place, 0, &squash->opened) == 0 &&
	    (squash->file = open_counted(path)) != NULL)
		return squash;
	*why = strerror(errno);
	squash_close(squash);
	return NULL;
}

void squash_close(struct squash *squash)
{
	squash_stop_idle_thread(squash);
	squash_drop_inodes(squash);
	squash_drop_listings(squash);
	squash_drop_readers(&squash->inodes);
	squash_drop_readers(&squash->directories);
	blocks_destroy(squash->blocks);
	sqfs_destroy(squash->xattrs);
	sqfs_destroy(squash->fragments);
	sqfs_destroy(squash->cmp);
	if (part.file == squash->file)
		part.file = NULL;
	sqfs_destroy(squash->file);
	if (squash->place >= 0)
		close(squash->place);
	pthread_mutex_destroy(&squash->lock);
	free(squash);
}
