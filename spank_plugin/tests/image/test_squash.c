#define _GNU_SOURCE
#include "image/squash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/image_figures.h"
#include "common/io.h"
#include "harness.h"
#include "squash_walk.h"

#define BLOCK 4096
/* the size of the files with several blocks and a tail; the second file's tail is in a fragment with
 * others */
#define LARGE (9 * BLOCK + 100)
#define SPARSE_END ((uint64_t)3000 * BLOCK)

static char content[LARGE];

/* ---- an image ---------------------------------------------------------------------------------- */

static const char *below(const char *name)
{
	static char path[4096];

	CHECK(snprintf(path, sizeof path, "%s/%s", test_directory(), name) < (int)sizeof path);
	return path;
}

static void run(const char *command)
{
	CHECK_INT(chdir(test_directory()), 0);
	if (system(command) != 0)
		CHECK_TEXT(command, "a command that succeeds");
}

static void write_file(const char *name, const void *bytes, size_t size, uint64_t at)
{
	CE_AUTO_FD fd = open(below(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	CHECK(fd >= 0);
	CHECK(lseek(fd, (off_t)at, SEEK_SET) >= 0);
	CHECK_INT(ce_write_all(fd, bytes, size), 0);
}

static void set_xattr(const char *name, const char *key, const char *value)
{
	CHECK_INT(setxattr(below(name), key, value, strlen(value), 0), 0);
}

/* Make `image`, a SquashFS file of the files of `tree`, which have everything that the format can have. */
static void make_image(const char *options)
{
	char command[512];

	for (size_t i = 0; i < LARGE; i++)
		content[i] = (char)(rand_r(&(unsigned){ (unsigned)i / 7 }) % 60 + ' ');
	run("rm -rf tree image && mkdir -p tree/many tree/empty");
	write_file("tree/large", content, LARGE, 0);
	write_file("tree/small", content, 10, 0);
	write_file("tree/sparse", "end", 3, SPARSE_END);
	set_xattr("tree/large", "user.a", "one");
	set_xattr("tree/large", "user.b", "two");
	set_xattr("tree/many", "user.a", "one");
	run("touch -d @1000 tree/nothing; chmod 4751 tree/small; ln tree/large tree/many/same");
	run("ln -s ../large tree/many/link; mkfifo tree/many/pipe");
	run("i=0; while [ $i -lt 700 ]; do echo $i >tree/many/file$i; i=$((i + 1)); done");
	CHECK(snprintf(command, sizeof command,
		       "mksquashfs tree image -b %d -quiet -no-progress -all-root -p '/disk b 640 0 0 "
		       "259 70000' %s >/dev/null",
		       BLOCK, options) < (int)sizeof command);
	run(command);
}

static struct squash *opened(void)
{
	const char *why = NULL;
	struct squash *squash = squash_open(below("image"), &why);

	if (!squash)
		CHECK_TEXT(why, "nothing");
	return squash;
}

static uint64_t at(struct squash *squash, const char *path)
{
	uint64_t inode = squash_root(squash);
	char *copy = strdup(path), *rest = copy, *name;

	while ((name = strsep(&rest, "/")) != NULL)
		CHECK_INT(squash_lookup(squash, inode, name, &inode), 0);
	free(copy);
	return inode;
}

static void has(struct squash *squash, uint64_t inode, uint64_t offset, size_t size,
		const char *expected, size_t length)
{
	struct squash_piece piece;
	size_t done = 0;

	CHECK_INT(squash_read(squash, inode, offset, size, &piece), 0);
	for (int i = 0; i < piece.count; i++) {
		CHECK(done + piece.parts[i].iov_len <= length);
		CHECK(memcmp(piece.parts[i].iov_base, expected + done, piece.parts[i].iov_len) ==
		      0);
		done += piece.parts[i].iov_len;
	}
	CHECK_INT(done, length);
	squash_release(squash, &piece);
}

/* ---- what it has in it ------------------------------------------------------------------------- */

static void read_large(struct squash *squash, uint64_t inode)
{
	has(squash, inode, 0, LARGE, content, LARGE);
	has(squash, inode, BLOCK - 1, 2, content + BLOCK - 1, 2);
	has(squash, inode, LARGE - 1, BLOCK, content + LARGE - 1, 1);
	has(squash, inode, LARGE, 1, "", 0);
	has(squash, inode, UINT64_MAX, 1, "", 0);
	has(squash, inode, 5, 0, "", 0);
}

static void read_all_forms(const char *compressor)
{
	char options[64], zeros[BLOCK] = "";

	snprintf(options, sizeof options, "-comp %s", compressor);
	make_image(options);
	struct squash *squash = opened();
	read_large(squash, at(squash, "large"));
	read_large(squash, at(squash, "many/same"));
	has(squash, at(squash, "small"), 0, 4096, content, 10);
	has(squash, at(squash, "nothing"), 0, 4096, "", 0);
	has(squash, at(squash, "many/file699"), 0, 4096, "699\n", 4);
	has(squash, at(squash, "sparse"), 7 * BLOCK + 1, BLOCK, zeros, BLOCK);
	has(squash, at(squash, "sparse"), SPARSE_END, BLOCK, "end", 3);
	squash_close(squash);
}

TEST("files are read in whole and in part, whatever they are compressed with")
{
	static const char *const compressors[] = { "zstd", "gzip", "lzo", "lz4", "xz" };

	for (size_t i = 0; i < sizeof compressors / sizeof *compressors; i++)
		read_all_forms(compressors[i]);
	read_all_forms("zstd -noD -noF -noI");
	read_all_forms("zstd -no-fragments");
}

TEST("files have what they had when the image was made, and root as their owner")
{
	struct stat st;
	char *target = NULL;

	make_image("-comp zstd");
	struct squash *squash = opened();
	CHECK_INT(squash_stat(squash, at(squash, "small"), &st), 0);
	CHECK_INT(st.st_mode, S_IFREG | 04751);
	CHECK_INT(st.st_size, 10);
	CHECK_INT(st.st_uid + st.st_gid, 0);
	CHECK_INT(squash_stat(squash, at(squash, "nothing"), &st), 0);
	CHECK_INT(st.st_mtime, 1000);
	CHECK_INT(squash_stat(squash, at(squash, "many/same"), &st), 0);
	CHECK_INT(st.st_nlink, 2);
	CHECK(at(squash, "many/same") == at(squash, "large"));
	CHECK_INT(squash_stat(squash, at(squash, "disk"), &st), 0);
	CHECK_INT(st.st_mode, S_IFBLK | 0640);
	CHECK(st.st_rdev == makedev(259, 70000));
	CHECK_INT(squash_stat(squash, at(squash, "many/pipe"), &st), 0);
	CHECK_INT(st.st_mode & S_IFMT, S_IFIFO);
	CHECK_INT(squash_link(squash, at(squash, "many/link"), &target), 0);
	CHECK_TEXT(target, "../large");
	free(target);
	CHECK_INT(squash_link(squash, at(squash, "large"), &target), -EINVAL);
	squash_close(squash);
}

struct seen {
	char last[256];
	size_t count, limit;
};

static int see(void *context, const struct squash_entry *entry)
{
	struct seen *seen = context;

	CHECK(strcmp(seen->last, entry->name) < 0);
	CHECK(entry->st != NULL && entry->st->st_ino == entry->number);
	CHECK_INT(entry->st->st_mode & S_IFMT, entry->type);
	snprintf(seen->last, sizeof seen->last, "%s", entry->name);
	return ++seen->count == seen->limit;
}

TEST("a directory is listed in the order of its names, from any number on")
{
	struct seen all = { .limit = SIZE_MAX }, some = { .limit = 3 }, none = { .limit = 1 };
	uint64_t inode;

	make_image("-comp zstd");
	struct squash *squash = opened();
	CHECK_INT(squash_list(squash, at(squash, "many"), 0, 1, see, &all), 0);
	CHECK_INT(all.count, 703);
	CHECK_INT(squash_list(squash, at(squash, "many"), 700, 1, see, &some), 0);
	CHECK_INT(some.count, 3);
	CHECK_TEXT(some.last, "same");
	CHECK_INT(squash_list(squash, at(squash, "many"), 703, 1, see, &none), 0);
	CHECK_INT(squash_list(squash, at(squash, "empty"), 0, 1, see, &none), 0);
	CHECK_INT(none.count, 0);
	CHECK_INT(squash_lookup(squash, at(squash, "many"), "file70", &inode), 0);
	CHECK_INT(squash_lookup(squash, at(squash, "many"), "file700", &inode), -ENOENT);
	CHECK_INT(squash_lookup(squash, at(squash, "empty"), "x", &inode), -ENOENT);
	CHECK_INT(squash_lookup(squash, at(squash, "large"), "x", &inode), -ENOTDIR);
	squash_close(squash);
}

TEST("extended attributes are found, and an image without any says so")
{
	char *text = NULL;

	make_image("-comp zstd -no-xattrs");
	struct squash *squash = opened();
	CHECK(!squash_has_xattrs(squash));
	CHECK_INT(squash_xattr(squash, at(squash, "large"), "user.a", &text), -ENODATA);
	squash_close(squash);
	make_image("-comp zstd");
	squash = opened();
	CHECK(squash_has_xattrs(squash));
	CHECK_INT(squash_xattr(squash, at(squash, "large"), "user.b", &text), 3);
	CHECK_TEXT(text, "two");
	free(text);
	CHECK_INT(squash_xattr(squash, at(squash, "large"), "user.c", &text), -ENODATA);
	CHECK_INT(squash_xattrs(squash, at(squash, "many/same"), &text), 14);
	CHECK(memcmp(text, "user.a\0user.b", 14) == 0 || memcmp(text, "user.b\0user.a", 14) == 0);
	free(text);
	CHECK_INT(squash_xattrs(squash, at(squash, "small"), &text), 0);
	free(text);
	squash_close(squash);
}

/* ---- figures ------------------------------------------------------------------------------------ */

TEST("what is read from the file is counted, and which blocks were kept")
{
	static struct ce_figures figures;
	struct stat st;

	squash_figures = &figures;
	make_image("-comp zstd -noD -noF -noI");
	CHECK_INT(stat(below("image"), &st), 0);
	struct squash *squash = opened();
	CHECK_INT(figures.size, st.st_size);
	CHECK(figures.reads > 0 && figures.bytes > 0 && figures.waited_ns > 0);
	uint64_t large = at(squash, "large"), bytes = figures.bytes, reads = figures.reads;
	has(squash, large, 0, LARGE, content, LARGE);
	CHECK_INT(figures.misses, 10);
	CHECK_INT(figures.hits, 0);
	CHECK(figures.reads - reads >= 10);
	CHECK(figures.bytes - bytes >= LARGE && figures.bytes <= (uint64_t)st.st_size);
	bytes = figures.bytes, reads = figures.reads;
	has(squash, large, 0, LARGE, content, LARGE);
	CHECK_INT(figures.misses, 10);
	CHECK_INT(figures.hits, 10);
	CHECK_INT(figures.bytes, bytes);
	CHECK_INT(figures.reads, reads);
	squash_close(squash);
}

/* ---- several at once --------------------------------------------------------------------------- */

static void *read_at_random(void *squash)
{
	unsigned seed = (unsigned)pthread_self();
	uint64_t large = at(squash, "large");

	for (int i = 0; i < 300; i++) {
		size_t from = (size_t)rand_r(&seed) % LARGE;
		size_t size = (size_t)rand_r(&seed) % (3 * BLOCK);
		has(squash, large, from, size, content + from,
		    size < LARGE - from ? size : LARGE - from);
		char name[32];
		snprintf(name, sizeof name, "many/file%d", rand_r(&seed) % 700);
		at(squash, name);
	}
	return NULL;
}

TEST("threads do not disturb each other")
{
	pthread_t threads[6];

	make_image("-comp zstd");
	struct squash *squash = opened();
	for (size_t i = 0; i < 6; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, read_at_random, squash), 0);
	for (size_t i = 0; i < 6; i++)
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	squash_close(squash);
}

/* ---- memory ------------------------------------------------------------------------------------- */

enum { WIDE_BLOCK = 128 * 1024, WIDE_BLOCKS = 32 };
/* memory that is used while the image is open: tables, the compressor of metadata */
#define OPEN_BYTES ((size_t)64 * 1024)

/* a function of AddressSanitizer, whose header GCC 12 lacks */
size_t __sanitizer_get_current_allocated_bytes(void);

static size_t held_before;

static size_t held(void)
{
	return __sanitizer_get_current_allocated_bytes() - held_before;
}

/* Open an image with a file of many blocks of the usual size, no two of which are alike. */
static struct squash *open_wide(void)
{
	run("rm -rf tree image && mkdir tree && head -c 4194304 /dev/urandom | base64 -w 0 "
	    "| head -c 4194304 >tree/wide");
	run("mksquashfs tree image -b 128K -comp zstd -Xcompression-level 1 -quiet -no-progress >/dev/null");
	held_before = __sanitizer_get_current_allocated_bytes();
	return opened();
}

static void read_part(struct squash *squash, uint64_t inode, uint64_t offset, size_t size)
{
	struct squash_piece piece;

	CHECK_INT(squash_read(squash, inode, offset, size, &piece), 0);
	squash_release(squash, &piece);
}

TEST("before anything is read, an image holds little more than its tables")
{
	struct squash *squash = open_wide();

	CHECK(held() < 4 * OPEN_BYTES);
	squash_close(squash);
}

TEST("a file that is read from its beginning to its end needs the memory of one block")
{
	struct squash *squash = open_wide();
	uint64_t wide = at(squash, "wide");

	read_part(squash, wide, 0, WIDE_BLOCK);
	size_t once = held();
	for (uint64_t offset = WIDE_BLOCK; offset < (uint64_t)WIDE_BLOCKS * WIDE_BLOCK;
	     offset += WIDE_BLOCK / 4)
		read_part(squash, wide, offset, WIDE_BLOCK / 4);
	CHECK(held() <= once + WIDE_BLOCK / 2);
	squash_close(squash);
}

TEST("blocks of which parts are still to be read are kept, at most 2 MiB of them")
{
	struct squash *squash = open_wide();
	uint64_t wide = at(squash, "wide");
	size_t before = held();

	for (uint64_t block = 0; block < 10; block++)
		read_part(squash, wide, block * WIDE_BLOCK, 4096);
	CHECK(held() - before >= 10 * (size_t)WIDE_BLOCK);
	for (uint64_t block = 10; block < WIDE_BLOCKS; block++)
		read_part(squash, wide, block * WIDE_BLOCK, 4096);
	CHECK(held() - before < ((size_t)2 << 20) + 4 * OPEN_BYTES);
	squash_close(squash);
}

TEST("an image that is not read for a while frees its memory, and can be read again")
{
	struct squash *squash = open_wide();
	uint64_t wide = at(squash, "wide");

	for (int round = 0; round < 2; round++) {
		for (uint64_t block = 0; block < 10; block++)
			read_part(squash, wide, block * WIDE_BLOCK, 4096);
		if (round == 0) {
			CHECK(held() > (size_t)WIDE_BLOCK * 10);
			squash_free_when_idle(squash, 0);
		}
		for (int64_t limit = ce_now_ms() + 60000; held() > 4 * OPEN_BYTES;)
			CHECK(ce_now_ms() < limit && sched_yield() == 0);
	}
	squash_close(squash);
}

/* ---- Apptainer's files -------------------------------------------------------------------------- */

/* Put `image` into a SIF file at an odd offset, in a descriptor with these numbers as Python text. */
static void make_sif(const char *start, const char *size, const char *count, const char *kind)
{
	char command[1024];

	CHECK(snprintf(command, sizeof command,
		       "python3 -c \"import struct; image = open('image', 'rb').read(); whole = len(image); "
		       "head = bytes(32) + b'SIF_MAGIC\\0' + b'01\\0' * 2 + bytes(40); "
		       "head += struct.pack('<4Q', %s, 4096, 0, 0) + bytes(8); "
		       "one = struct.pack('<IB12xQQ168xII', 0x4004, 1, %s, %s, %s, 2).ljust(585, bytes(1)); "
		       "data = head.ljust(4096, bytes(1)) + bytes(585) + one; "
		       "open('sif', 'wb').write(data.ljust(7001, bytes(1)) + image)\"",
		       count, start, size, kind) < (int)sizeof command);
	run(command);
}

TEST("a SIF file is served from where its root file system begins")
{
	const char *why;

	make_image("-comp zstd");
	make_sif("7001", "whole", "2", "1");
	struct squash *squash = squash_open(below("sif"), &why);
	if (!squash)
		CHECK_TEXT(why, "nothing");
	read_large(squash, at(squash, "large"));
	squash_close(squash);
	squash_close(opened());
}

TEST("a SIF file whose descriptors lie is refused")
{
	static const struct {
		const char *start, *size, *count, *kind, *why;
	} lies[] = {
		{ "2**64 - 1", "whole", "2", "1", "a SIF file that was cut short" },
		{ "7001", "2**64 - 7001", "2", "1", "a SIF file that was cut short" },
		{ "7001", "whole + 1", "2", "1", "a SIF file that was cut short" },
		{ "7001", "whole - 4096", "2", "1", "the file is shorter than its file system" },
		{ "7001", "90", "2", "1", "a SIF file with a damaged file system" },
		{ "7000", "whole", "2", "1", "a SIF file with a damaged file system" },
		{ "7001", "whole", "2", "2", "a SIF file without a SquashFS file system" },
		{ "7001", "whole", "1", "1", "a SIF file without a root file system" },
		{ "7001", "whole", "2**62", "1", "a SIF file with damaged descriptors" },
		{ "7001", "whole", "1000", "1", "a SIF file with damaged descriptors" },
	};
	const char *why;

	make_image("-comp zstd -nopad");
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		make_sif(lies[i].start, lies[i].size, lies[i].count, lies[i].kind);
		CHECK(squash_open(below("sif"), &why) == NULL);
		CHECK_TEXT(why, lies[i].why);
	}
}

/* ---- damaged files ----------------------------------------------------------------------------- */

TEST("a damaged file does no harm, wherever it is damaged")
{
	unsigned seed = 1;
	size_t size;

	/* without compression, more of the damaged bytes reach the code that reads inodes and attributes */
	make_image("-comp zstd -noI -noX");
	CE_AUTO_FD fd = open(below("image"), O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CE_AUTO_FREE char *whole = ce_read_file_at(fd, 1 << 24, &size);
	CHECK(whole != NULL);
	for (int round = 0; round < 150; round++) {
		const char *why;
		for (int i = 0; i < 1 + round % 4; i++) {
			char byte = (char)rand_r(&seed);
			/* damage the end, where the tables are, more often */
			size_t back = (size_t)rand_r(&seed) % (round % 3 ? size / 4 : size);
			CHECK_INT(pwrite(fd, &byte, 1, (off_t)(size - 1 - back)), 1);
		}
		struct squash *squash = squash_open(below("image"), &why);
		if (squash) {
			squash_ask_all(squash);
			squash_close(squash);
		}
		CHECK_INT(pwrite(fd, whole, size, 0), (long)size);
	}
}

/* Return the result of squash_is_gone for an open image after a shell command. */
static int gone_after(const char *command)
{
	make_image("-comp zstd");
	struct squash *squash = opened();
	CHECK_INT(squash_is_gone(squash), 0);
	run(command);
	int gone = squash_is_gone(squash);
	squash_close(squash);
	return gone;
}

TEST("a file that is written to or cut while it is open is gone, one that is linked or moved is not")
{
	CHECK_INT(gone_after("truncate -s +1 image"), 1);
	CHECK_INT(gone_after(": >image"), 1);
	CHECK_INT(gone_after("printf x | dd of=image bs=1 seek=5000 conv=notrunc status=none"), 1);
	CHECK_INT(gone_after("ln image image2; chmod 0600 image; mv image2 image3"), 0);
	CHECK_INT(gone_after("rm image"), 0);
}

TEST("a file with more attributes than any kernel sets is damaged, and is not read through")
{
	const char *why;
	char *names = NULL;
	struct stat st;
	uint64_t inode = 0;

	run("rm -f image; python3 -c \"\n"
	    "import sys, tarfile\n"
	    "many = {f'SCHILY.xattr.user.n{n}': 'v' for n in range(5000)}\n"
	    "with tarfile.open(fileobj=sys.stdout.buffer, mode='w|') as file:\n"
	    "    for name, keys in (('few', {'SCHILY.xattr.user.n': 'v'}), ('many', many)):\n"
	    "        entry = tarfile.TarInfo(name)\n"
	    "        entry.pax_headers = keys\n"
	    "        file.addfile(entry)\n"
	    "\" | mksquashfs - image -tar -quiet -no-progress >mk.log");
	struct squash *squash = squash_open(below("image"), &why);
	CHECK(squash != NULL);
	CHECK_INT(squash_lookup(squash, squash_root(squash), "many", &inode), 0);
	CHECK_INT(squash_stat(squash, inode, &st), 0);
	CHECK_INT(squash_xattrs(squash, inode, &names), -EIO);
	CHECK_INT(squash_xattr(squash, inode, "user.n1", &names), -EIO);
	CHECK_INT(squash_lookup(squash, squash_root(squash), "few", &inode), 0);
	CHECK_INT(squash_xattrs(squash, inode, &names), 7);
	free(names);
	squash_close(squash);
}

TEST("attributes that only root could read are not listed")
{
	const char *why;
	char *names = NULL;
	uint64_t inode = 0;

	run("rm -f image; python3 -c \"\n"
	    "import sys, tarfile\n"
	    "names = ('trusted.overlay.opaque', 'user.n', 'security.n')\n"
	    "with tarfile.open(fileobj=sys.stdout.buffer, mode='w|') as file:\n"
	    "    entry = tarfile.TarInfo('file')\n"
	    "    entry.pax_headers = {f'SCHILY.xattr.{name}': 'v' for name in names}\n"
	    "    file.addfile(entry)\n"
	    "\" | mksquashfs - image -tar -quiet -no-progress >mk.log");
	struct squash *squash = squash_open(below("image"), &why);
	CHECK(squash != NULL);
	CHECK_INT(squash_lookup(squash, squash_root(squash), "file", &inode), 0);
	CHECK_INT(squash_xattrs(squash, inode, &names), 18);
	CHECK(memcmp(names, "user.n\0security.n", 18) == 0 || memcmp(names, "security.n\0user.n", 18) == 0);
	free(names);
	squash_close(squash);
}

TEST("a file that is not SquashFS is refused with the reason")
{
	const char *why = NULL;

	make_image("-comp zstd");
	run("head -c 5000 image >short; echo text >image");
	CHECK(squash_open(below("image"), &why) == NULL);
	CHECK_TEXT(why, "not a SquashFS 4.0 file system");
	CHECK(squash_open(below("short"), &why) == NULL);
	CHECK_TEXT(why, "the file is shorter than its file system");
	CHECK(squash_open(below("nowhere"), &why) == NULL);
	CHECK_TEXT(why, "No such file or directory");
}
