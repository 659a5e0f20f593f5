/*
 * A file server that is far away, for tests/bench/venvs.py: file_server STATE DIRECTORY MOUNT shows
 * the directory read-only, as a client with a cache of its own sees it. Each request takes 1 ms, and
 * all clients that share the file STATE share 50 MB/s. STATE counts requests and bytes.
 */
#define FUSE_USE_VERSION 35
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LATENCY_NS = 1000000, NS_PER_BYTE = 20 };

static struct {
	atomic_ulong names, opens, reads, bytes, free_at;
} *state;
static int directory;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wait_for(atomic_ulong *count, uint64_t bytes)
{
	uint64_t start = now(), before = atomic_load(&state->free_at), until;

	atomic_fetch_add(count, 1);
	atomic_fetch_add(&state->bytes, bytes);
	do
		until = (before > start ? before : start) + bytes * NS_PER_BYTE;
	while (bytes && !atomic_compare_exchange_weak(&state->free_at, &before, until));
	until = (bytes ? until : start) + LATENCY_NS;
	struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static const char *below(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int look(const char *path, struct stat *st, struct fuse_file_info *file)
{
	(void)file;
	wait_for(&state->names, 0);
	return fstatat(directory, below(path), st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int follow(const char *path, char *target, size_t size)
{
	wait_for(&state->names, 0);
	ssize_t length = readlinkat(directory, below(path), target, size - 1);
	if (length < 0)
		return -errno;
	target[length] = '\0';
	return 0;
}

static int list(const char *path, void *out, fuse_fill_dir_t add, off_t from,
		struct fuse_file_info *file, enum fuse_readdir_flags flags)
{
	(void)from;
	(void)file;
	(void)flags;
	wait_for(&state->names, 0);
	DIR *found = fdopendir(openat(directory, below(path), O_RDONLY | O_DIRECTORY));
	if (!found)
		return -errno;
	for (struct dirent *one; (one = readdir(found));) {
		struct stat st = {.st_ino = one->d_ino, .st_mode = (mode_t)DTTOIF(one->d_type)};
		add(out, one->d_name, &st, 0, 0);
	}
	closedir(found);
	return 0;
}

static int begin(const char *path, struct fuse_file_info *file)
{
	wait_for(&state->opens, 0);
	int fd = openat(directory, below(path), O_RDONLY);
	if (fd < 0)
		return -errno;
	file->fh = (uint64_t)fd;
	file->keep_cache = 1;
	return 0;
}

static int get(const char *path, char *out, size_t size, off_t at, struct fuse_file_info *file)
{
	(void)path;
	ssize_t length = pread((int)file->fh, out, size, at);
	wait_for(&state->reads, length > 0 ? (uint64_t)length : 0);
	return length < 0 ? -errno : (int)length;
}

static int end(const char *path, struct fuse_file_info *file)
{
	(void)path;
	close((int)file->fh);
	return 0;
}

static void *as_a_client(struct fuse_conn_info *connection, struct fuse_config *config)
{
	connection->max_readahead = 1 << 20;
	/* the time for which a client of NFS believes what it knows of a file at least */
	config->entry_timeout = config->attr_timeout = config->negative_timeout = 3;
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations operations = {
		.init = as_a_client, .getattr = look, .readlink = follow, .readdir = list,
		.open = begin, .read = get, .release = end,
	};
	int fd = argc == 4 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;

	if (fd < 0 || ftruncate(fd, sizeof *state) ||
	    (state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED ||
	    (directory = open(argv[2], O_RDONLY | O_DIRECTORY)) < 0) {
		perror("file_server STATE DIRECTORY MOUNT");
		return 1;
	}
	char *words[] = {argv[0], "-f", "-o", "ro,allow_other", argv[3], NULL};
	return fuse_main(5, words, &operations, NULL);
}
