/* ce-image: serves a SquashFS file until it is unmounted.
 *
 *     ce-image FILE /dev/fd/N	through an open FUSE device that is mounted already
 *     ce-image FILE /dev/fd/N again	the same, where another server has answered the first requests
 *     ce-image FILE /dev/fd/N tell	the same as the first, and writes to the standard output what is read
 *     ce-image FILE DIRECTORY	mounts it there first, and goes to the background
 *
 * Behind a device, it counts in a memory file that is its standard input (common/image_figures.h).
 *
 * The file's contents never change, so the kernel may cache all of them: it asks once for each name, for each
 * directory and for each page, and never when a file is opened. */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/image_figures.h"
#include "common/image_gone.h"
#include "common/image_reads.h"
#include "common/program.h"
#include "image_cage.h"
#include "squash.h"

#define FOREVER DBL_MAX
/* read-ahead requests that may be pending at the same time */
#define BACKGROUND 64
#define IDLE_THREADS 4
/* As many threads as the node has processors, within these limits: more would not decompress faster. */
#define LEAST_THREADS 10
#define MOST_THREADS 64
/* malloc takes what is smaller than this from its heap, enlarges the heap by as much, and gives memory back
 * only when more than that is free at its end: zstd needs more for each block than malloc keeps by default,
 * and would get new pages each time */
#define HEAP_STEP_BYTES (1 << 20)

/* Caches are freed after this time without a request. It is longer than a program's start pauses between two
 * files. */
#define IDLE_S 1

/* The kernel asks for this much at least where it reads ahead. */
#define LEAST_TOLD 16384

#define DEVICE "/dev/fd/"

/* The first number for a node of FUSE: the kernel uses 0 for none, and 1 for the root. */
#define FIRST_NODE 2

/* The descriptor to write to what the kernel reads (image_reads.h); -1: nowhere. */
static atomic_int told = -1;

/* Return the image of a request, and count the request. */
static struct squash *take(fuse_req_t req)
{
	ce_figure_add(&squash_figures->requests, 1);
	return fuse_req_userdata(req);
}

static uint64_t inode_of(const struct squash *image, fuse_ino_t node)
{
	return node == FUSE_ROOT_ID ? squash_root(image) : node - FIRST_NODE;
}

static void describe(const struct squash *image, uint64_t inode, const struct stat *st,
		     struct fuse_entry_param *entry)
{
	entry->ino = inode == squash_root(image) ? FUSE_ROOT_ID : inode + FIRST_NODE;
	entry->attr = *st;
	entry->attr_timeout = entry->entry_timeout = FOREVER;
}

static void image_init(void *data, struct fuse_conn_info *connection)
{
	(void)data;
	connection->want |= connection->capable & FUSE_CAP_CACHE_SYMLINKS;
	connection->max_background = BACKGROUND;
}

/* Reply with an error, unless the image's file is gone. A task would then only see EIO or SIGBUS, now or
 * hours later; instead, end with an exit code by which the guard reports the reason and ends the step. */
static void reply_error(fuse_req_t req, int error)
{
	if (error == EIO && squash_is_gone(fuse_req_userdata(req)))
		_exit(CE_IMAGE_GONE);
	fuse_reply_err(req, error);
}

/* Tell the guard. A pipe that is full is not waited for. */
static void tell(const struct ce_read *what)
{
	if (told >= 0 && write(told, what, sizeof *what) < 0 && errno == EPIPE)
		told = -1;
}

/* Tell the node of a name before the kernel gets it, so that a directory is told before its entries. */
static void tell_name(fuse_ino_t parent, const char *name, uint64_t found)
{
	struct ce_read what = { .node = parent, .found = found };
	size_t length = strlen(name);

	if (length >= sizeof what.name)
		return;
	memcpy(what.name, name, length);
	tell(&what);
}

/* Tell what is read, but for small pieces here and there, around which the next mount needs nothing. */
static void tell_pieces(fuse_ino_t node, uint64_t offset, size_t size)
{
	uint64_t piece = offset / CE_READ_PIECE, end = (offset + size + CE_READ_PIECE - 1) / CE_READ_PIECE;

	if (offset != 0 && size < LEAST_TOLD)
		return;
	for (; piece < end && piece <= UINT32_MAX; piece++)
		tell(&(struct ce_read){ .node = node, .piece = (uint32_t)piece });
}

static void image_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct squash *image = take(req);
	/* an entry without a node is cached, too: the name does not exist */
	struct fuse_entry_param entry = { .entry_timeout = FOREVER };
	struct stat st;
	uint64_t inode;
	size_t prefix = strlen(CE_READ_NAME);
	bool is_told = told >= 0 && parent == FUSE_ROOT_ID && strncmp(name, CE_READ_NAME, prefix) == 0;
	int rc = 0;

	ce_figure_add(&squash_figures->lookups, 1);
	if (is_told)
		inode = inode_of(image, strtoull(name + prefix, NULL, 16));
	else
		rc = squash_lookup(image, inode_of(image, parent), name, &inode);
	if (rc == 0)
		rc = squash_stat(image, inode, &st);
	if (is_told && (rc < 0 || !S_ISREG(st.st_mode)))
		rc = -ENOENT;
	if (rc == 0)
		describe(image, inode, &st, &entry);
	if (!is_told && (rc == 0 || rc == -ENOENT))
		tell_name(parent, name, entry.ino);
	if (rc < 0 && rc != -ENOENT)
		reply_error(req, -rc);
	else
		fuse_reply_entry(req, &entry);
}

static void image_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
	struct squash *image = take(req);
	struct stat st;
	int rc = squash_stat(image, inode_of(image, node), &st);

	(void)info;
	if (rc < 0)
		reply_error(req, -rc);
	else
		fuse_reply_attr(req, &st, FOREVER);
}

static void image_readlink(fuse_req_t req, fuse_ino_t node)
{
	struct squash *image = take(req);
	char *target = NULL;
	int rc = squash_link(image, inode_of(image, node), &target);

	if (rc < 0)
		reply_error(req, -rc);
	else
		fuse_reply_readlink(req, target);
	free(target);
}

/* Reply ENOSYS: the kernel then opens files without asking, and keeps its cache. */
static void image_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
	(void)node;
	(void)info;
	(void)take(req);
	fuse_reply_err(req, ENOSYS);
}

static void image_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t offset,
		       struct fuse_file_info *info)
{
	struct squash *image = take(req);
	struct squash_piece piece;
	int rc = squash_read(image, inode_of(image, node), (uint64_t)offset, size, &piece);

	(void)info;
	if (rc < 0) {
		reply_error(req, -rc);
		return;
	}
	fuse_reply_iov(req, piece.parts, piece.count);
	squash_release(image, &piece);
	tell_pieces(node, (uint64_t)offset, size);
}

/* ---- directories ------------------------------------------------------------------------------- */

struct listed {
	fuse_req_t req;
	struct squash *image;
	fuse_ino_t node;
	char *buffer;
	size_t size, used;
	int plus;   /* whether each entry has the attributes that its lookup would return */
	off_t next; /* number of the next entry: ".", "..", then those of the file */
};

/* Put an entry into the buffer. Return 0, or 1 if there is no room. */
static int put(struct listed *listed, const char *name, const struct fuse_entry_param *entry)
{
	char *place = listed->buffer + listed->used;
	size_t room = listed->size - listed->used, needed;

	if (listed->plus)
		needed = fuse_add_direntry_plus(listed->req, place, room, name, entry,
						listed->next);
	else
		needed = fuse_add_direntry(listed->req, place, room, name, &entry->attr,
					   listed->next);
	if (needed > room)
		return 1;
	listed->used += needed;
	listed->next++;
	return 0;
}

static int put_found(void *context, const struct squash_entry *found)
{
	struct listed *listed = context;
	/* without a node, only the name is returned */
	struct fuse_entry_param entry = { .attr = { .st_ino = found->number,
						    .st_mode = found->type } };

	if (found->st)
		describe(listed->image, found->inode, found->st, &entry);
	if (put(listed, found->name, &entry) != 0)
		return 1;
	/* the kernel knows it from now on, and looks up what is in it */
	if (found->st && S_ISDIR(found->st->st_mode))
		tell_name(listed->node, found->name, entry.ino);
	return 0;
}

static int put_dots(struct listed *listed, off_t from)
{
	static const char *const dots[] = { ".", ".." };
	struct fuse_entry_param entry = { .attr = { .st_ino = FUSE_ROOT_ID, .st_mode = S_IFDIR } };

	for (; from < 2; from++) {
		if (put(listed, dots[from], &entry) != 0)
			return 1;
	}
	return 0;
}

static void list(fuse_req_t req, fuse_ino_t node, size_t size, off_t from, int plus)
{
	struct listed listed = {
		.req = req, .image = take(req), .node = node, .size = size, .plus = plus
	};
	size_t first = from > 2 ? (size_t)from - 2 : 0;
	int rc = 0;

	listed.buffer = malloc(size);
	listed.next = from + 1;
	if (!listed.buffer)
		rc = -ENOMEM;
	else if (put_dots(&listed, from) == 0)
		rc = squash_list(listed.image, inode_of(listed.image, node), first, plus, put_found,
				 &listed);
	if (rc < 0)
		reply_error(req, -rc);
	else
		fuse_reply_buf(req, listed.buffer, listed.used);
	if (from == 0 && rc >= 0)
		tell_pieces(node, 0, 1);
	free(listed.buffer);
}

static void image_readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t from,
			  struct fuse_file_info *info)
{
	(void)info;
	list(req, node, size, from, 0);
}

static void image_readdirplus(fuse_req_t req, fuse_ino_t node, size_t size, off_t from,
			      struct fuse_file_info *info)
{
	(void)info;
	list(req, node, size, from, 1);
}

/* ---- extended attributes ----------------------------------------------------------------------- */

static void reply_xattr(fuse_req_t req, const char *bytes, int length, size_t size)
{
	if (length < 0)
		reply_error(req, -length);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)length);
	else if ((size_t)length > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, bytes, (size_t)length);
}

static void image_getxattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t size)
{
	struct squash *image = take(req);
	char *value = NULL;

	/* ENOSYS: then the kernel never asks again */
	int length = !squash_has_xattrs(image) ?
			     -ENOSYS :
			     squash_xattr(image, inode_of(image, node), name, &value);
	reply_xattr(req, value, length, size);
	free(value);
}

static void image_listxattr(fuse_req_t req, fuse_ino_t node, size_t size)
{
	struct squash *image = take(req);
	char *names = NULL;
	int length = squash_xattrs(image, inode_of(image, node), &names);

	reply_xattr(req, names, length, size);
	free(names);
}

static void image_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct statvfs st;

	(void)node;
	squash_statfs(take(req), &st);
	fuse_reply_statfs(req, &st);
}

static const struct fuse_lowlevel_ops operations = {
	.init = image_init,
	.lookup = image_lookup,
	.getattr = image_getattr,
	.readlink = image_readlink,
	.open = image_open,
	.read = image_read,
	.opendir = image_open,
	.readdir = image_readdir,
	.readdirplus = image_readdirplus,
	.statfs = image_statfs,
	.getxattr = image_getxattr,
	.listxattr = image_listxattr,
};

/* ---- the program ------------------------------------------------------------------------------- */

static int is_device(const char *place)
{
	return strncmp(place, DEVICE, strlen(DEVICE)) == 0;
}

static unsigned threads(long processors)
{

	if (processors < LEAST_THREADS)
		return LEAST_THREADS;
	return processors < MOST_THREADS ? (unsigned)processors : MOST_THREADS;
}

/* Serve requests until the file is unmounted; libfuse before 3.12 starts as many threads as it needs. */
static int answer(struct fuse_session *session, long processors)
{
	(void)processors;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 12)
	struct fuse_loop_config *loop = fuse_loop_cfg_create();

	if (!loop)
		return -1;
	fuse_loop_cfg_set_max_threads(loop, threads(processors));
	fuse_loop_cfg_set_idle_threads(loop, IDLE_THREADS);
	int rc = fuse_session_loop_mt(session, loop);
	fuse_loop_cfg_destroy(loop);
	return rc;
#else
	struct fuse_loop_config loop = { .max_idle_threads = IDLE_THREADS };

	return fuse_session_loop_mt(session, &loop);
#endif
}

/* Give libfuse the kernel's first request, FUSE_INIT, which the kernel sends once for a connection and has
 * sent to another server. The kernel refuses libfuse's reply, and libfuse ignores that. */
static void greet(struct fuse_session *session)
{
	struct {
		struct fuse_in_header header;
		struct fuse_init_in init;
	} request = {
		.header = { .len = sizeof request, .opcode = FUSE_INIT, .unique = UINT64_MAX - 1 },
		.init = { .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
			  .max_readahead = 1 << 20, .flags = ~(uint32_t)FUSE_INIT_EXT },
	};
	const struct fuse_buf buffer = { .size = sizeof request, .mem = &request };

	fuse_session_process_buf(session, &buffer);
}

static int complain(const char *file, const char *why)
{
	fprintf(stderr, "ce-image: %s: %s\n", file, why);
	return -1;
}

/* Confine this process: from here on, whatever the file's contents make it do stays inside. */
static int enter_cage(const char *file)
{
	if (image_cage() == 0)
		return 0;
	fprintf(stderr, "ce-image: %s: not read without seccomp: %s\n", file, strerror(errno));
	return -1;
}

static int load(struct squash *image, const char *file)
{
	const char *why = squash_load(image);

	return why ? complain(file, why) : 0;
}

/* Mount the image and confine this process. With a device, no byte of the file is read before that. With a
 * directory, the file's tables are read before, and nothing else: another program mounts it, which the cage
 * would not allow, and the caller waits for errors in the file. Return 0, or -1 after a message. */
static int start(struct fuse_session *session, struct squash *image, const char *file,
		 const char *place)
{
	if (is_device(place))
		return fuse_session_mount(session, place) == 0 && enter_cage(file) == 0 ?
			       load(image, file) :
			       -1;
	if (load(image, file) < 0 || fuse_session_mount(session, place) != 0)
		return -1;
	if (fuse_daemonize(0) == 0 && enter_cage(file) == 0)
		return 0;
	fuse_session_unmount(session);
	return -1;
}

/* Return whether the last word, which there may be, is this one. */
static bool is_mode(char **words, const char *mode)
{
	return words[3] && strcmp(words[3], mode) == 0;
}

/* Count in the standard input, if that is a memory file for it. */
static void share_figures(void)
{
	int seals = fcntl(STDIN_FILENO, F_GET_SEALS);
	void *found = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && lseek(STDIN_FILENO, 0, SEEK_END) ==
				sizeof *squash_figures ?
			      mmap(NULL, sizeof *squash_figures, PROT_READ | PROT_WRITE, MAP_SHARED,
				   STDIN_FILENO, 0) :
			      MAP_FAILED;

	if (found != MAP_FAILED)
		squash_figures = found;
}

static int serve(struct squash *image, char **words)
{
	const char *file = words[1], *place = words[2];
	long processors = sysconf(_SC_NPROCESSORS_ONLN); /* reads files, which the cage does not allow */
	char options[] = "-oro,subtype=ce-image";
	char *argv[] = { words[0], options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	struct fuse_session *session =
		fuse_session_new(&args, &operations, sizeof operations, image);
	int rc = -1;

	if (session && start(session, image, file, place) == 0) {
		if (is_mode(words, "again"))
			greet(session);
		if (is_mode(words, "tell"))
			told = STDOUT_FILENO;
		squash_free_when_idle(image, IDLE_S);
		rc = answer(session, processors);
		fuse_session_unmount(session);
	}
	if (session)
		fuse_session_destroy(session);
	fuse_opt_free_args(&args);
	return rc;
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	const char *why;

	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("ce-image with libfuse %s\n", fuse_pkgversion());
		return 0;
	}
	if (argc != 3 && (argc != 4 || !is_device(argv[2]) ||
			  (!is_mode(argv, "again") && !is_mode(argv, "tell")))) {
		fprintf(stderr, "usage: ce-image FILE DIRECTORY|%sN [again|tell]\n", DEVICE);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	mallopt(M_MMAP_THRESHOLD, HEAP_STEP_BYTES);
	mallopt(M_TRIM_THRESHOLD, HEAP_STEP_BYTES);
	mallopt(M_TOP_PAD, HEAP_STEP_BYTES);
	mallopt(M_ARENA_MAX, 2);
	if (is_device(argv[2]))
		share_figures();
	struct squash *image = squash_file(argv[1], &why);
	if (!image) {
		(void)complain(argv[1], why);
		return 1;
	}
	int rc = serve(image, argv);
	squash_close(image);
	return rc == 0 ? 0 : 1;
}
