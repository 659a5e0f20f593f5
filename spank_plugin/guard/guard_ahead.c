/*
 * Reads an image ahead. A new mount has nothing in the kernel's page cache, so its first program waits for
 * each block. A thread records what the kernel looks up and reads in a mount, and asks for it at the next
 * mount, as soon as a program begins to read them again. All that a record can cause is reading: whatever it
 * says, the kernel takes the pieces from this image's mount, and forgets them when memory is short.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/answers.h"
#include "common/image_reads.h"
#include "common/io.h"
#include "guard_hold.h"
#include "guard_ops.h"
#include "step_answers.h"

/* A program that reads or looks up more than this reads data. A record's name is a number below RECORDS: an
 * image may replace another one's. */
enum { MOST_READS = 8192, RECORDS = 16 };
/* A shell and small commands read fewer pieces again, Python more before its first import. */
enum { LEAST_SAME = 48 };
/* between two looks at the pipe; without a read, after which the record is first written */
enum { PAUSE_MS = 5, QUIET_MS = 20, LONGEST_QUIET_MS = 60 * 1000 };
/* Programs look up and read more than the pipe's default size has room for. */
enum { PIPE_BYTES = 512 * 1024 };
/* Pieces that are asked for before the first of them is there: enough for the server's threads. What the
 * program itself asks for waits behind them. */
enum { MOST_ASKED = 16 };
enum { KEPT_DIRECTORIES = 64 };

struct ahead {
	char *request;	      /* which image it is (guard_describe_image) */
	int place;	      /* its mount */
	int reads;	      /* the pipe of its server */
	int records;	      /* the directory of records */
	char name[16];	      /* the record's */
	size_t count, before; /* how many reads there are, and how many of them were recorded before */
	size_t same;	      /* how many pieces of those have been read again */
	struct ce_read read[MOST_READS];
	bool again[MOST_READS];
	struct {
		uint64_t node;
		int fd;
	} directory[KEPT_DIRECTORIES];
	size_t directories; /* how many have been opened */
};

static void release(struct ahead *ahead)
{
	ce_close_fd(&ahead->place);
	ce_close_fd(&ahead->reads);
	ce_close_fd(&ahead->records);
	free(ahead->request);
	free(ahead);
}

static int open_records(void)
{
	unsigned inside, uid;
	CE_AUTO_FREE char *map = ce_read_path(AT_FDCWD, "/proc/self/uid_map", 0, 4096, NULL);

	if (map == NULL || sscanf(map, "%u %u", &inside, &uid) != 2)
		return -1;
	return ce_user_answers(CE_VAR_TMP, uid, "reads", true);
}

/* Return whether no name leads out of its directory: whatever tells it may read a hostile image. */
static bool is_sound(const struct ce_read *read)
{
	return memchr(read->name, '\0', sizeof read->name) != NULL && strchr(read->name, '/') == NULL &&
	       strcmp(read->name, ".") != 0 && strcmp(read->name, "..") != 0;
}

/* Take the record: a checksum of what follows, begun with the size of a read, so that a record of another
 * version has another one; the request with its NUL, the reads. */
static void load(struct ahead *ahead)
{
	size_t size = 0, head = sizeof(uint32_t) + strlen(ahead->request) + 1;
	CE_AUTO_FREE char *text =
		ce_read_own(ahead->records, ahead->name, geteuid(), head + sizeof ahead->read, &size);
	uint32_t sum;

	if (text == NULL || size < head || (size - head) % sizeof ahead->read[0] != 0)
		return;
	memcpy(&sum, text, sizeof sum);
	if (sum != ce_crc(sizeof ahead->read[0], text + sizeof sum, size - sizeof sum) ||
	    memcmp(text + sizeof sum, ahead->request, head - sizeof sum) != 0)
		return;
	memcpy(ahead->read, text + head, size - head);
	for (size_t i = 0; i < (size - head) / sizeof ahead->read[0] && is_sound(&ahead->read[i]); i++)
		ahead->count = ahead->before = i + 1;
}

/* Write the record. A part of one has another checksum. */
static void save(const struct ahead *ahead)
{
	size_t named = strlen(ahead->request) + 1, size = ahead->count * sizeof ahead->read[0];
	uint32_t sum = ce_crc(ce_crc(sizeof ahead->read[0], ahead->request, named), ahead->read, size);
	CE_AUTO_FD fd = openat(ahead->records, ahead->name,
			       O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0 && ahead->count < MOST_READS && ce_write_all(fd, &sum, sizeof sum) == 0 &&
	    ce_write_all(fd, ahead->request, named) == 0)
		(void)ce_write_all(fd, ahead->read, size);
}

/* ---- reading ahead ----------------------------------------------------------------------------- */

static int open_node(struct ahead *ahead, uint64_t node, size_t below, int flags);

/* Return a descriptor of a directory that one of the first `below` reads has found, valid until the next
 * call; -1 if there is none. */
static int open_directory(struct ahead *ahead, uint64_t node, size_t below)
{
	if (node == CE_READ_ROOT)
		return ahead->place;
	for (size_t i = 0; i < KEPT_DIRECTORIES && i < ahead->directories; i++) {
		if (ahead->directory[i].node == node)
			return ahead->directory[i].fd;
	}
	int fd = open_node(ahead, node, below, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return -1;
	size_t place = ahead->directories++ % KEPT_DIRECTORIES;
	if (ahead->directories > KEPT_DIRECTORIES)
		close(ahead->directory[place].fd);
	ahead->directory[place].node = node;
	ahead->directory[place].fd = fd;
	return fd;
}

/* Open what one of the first `below` reads has found, by its name. Return -1 if there is none. */
static int open_node(struct ahead *ahead, uint64_t node, size_t below, int flags)
{
	while (below-- > 0) {
		const struct ce_read *read = &ahead->read[below];
		if (read->name[0] == '\0' || read->found != node)
			continue;
		int directory = open_directory(ahead, read->node, below);
		return directory < 0 ? -1 : openat(directory, read->name, flags | O_NOFOLLOW | O_CLOEXEC);
	}
	return -1;
}

/* Open the file or directory of a read. A listing may have told the kernel the file's name. */
static int open_read(struct ahead *ahead, size_t i)
{
	const struct ce_read *read = &ahead->read[i];
	char name[64];
	int fd = open_node(ahead, read->node, i, O_RDONLY | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	snprintf(name, sizeof name, CE_READ_NAME "%llx", (unsigned long long)read->node);
	return openat(ahead->place, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
}

/* Let the kernel look up a name, which there may not be, and read it if it is a link. */
static void look_up(struct ahead *ahead, size_t i)
{
	const struct ce_read *read = &ahead->read[i];
	int directory = open_directory(ahead, read->node, i);
	CE_AUTO_FD found = directory < 0 ? -1 :
					   openat(directory, read->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char byte;

	(void)!readlinkat(found, "", &byte, sizeof byte);
}

struct asked {
	int fd;
	off_t from;
};

/* Wait until the kernel has a piece. */
static void await(struct asked *asked)
{
	char byte;

	if (asked->fd >= 0)
		(void)!pread(asked->fd, &byte, 1, asked->from);
	ce_close_fd(&asked->fd);
}

/* Let the kernel list a directory, or read a piece in the background, which leaves out what it has. */
static void ask(struct ahead *ahead, size_t i, struct asked *asked)
{
	char entries[CE_READ_PIECE]; /* as an overlay asks: with the first part come nodes */

	asked->fd = open_read(ahead, i);
	asked->from = (off_t)(ahead->read[i].piece * CE_READ_PIECE);
	while (getdents64(asked->fd, entries, sizeof entries) > 0)
		;
	(void)posix_fadvise(asked->fd, asked->from, CE_READ_PIECE, POSIX_FADV_WILLNEED);
}

/* Look up and read what was recorded before, within an eighth of the job's memory. */
static void follow(struct ahead *ahead)
{
	int64_t room = guard_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup") / 8;
	struct asked asked[MOST_ASKED];
	size_t pieces = 0;

	for (size_t i = 0; i < MOST_ASKED; i++)
		asked[i].fd = -1;
	for (size_t i = 0; i < ahead->before && room > 0; i++) {
		if (ahead->read[i].name[0] != '\0') {
			look_up(ahead, i);
			continue;
		}
		room -= (int64_t)CE_READ_PIECE;
		struct asked *oldest = &asked[pieces++ % MOST_ASKED];
		await(oldest);
		ask(ahead, i, oldest);
	}
	for (size_t i = 0; i < MOST_ASKED; i++)
		await(&asked[i]);
	for (size_t i = 0; i < KEPT_DIRECTORIES && i < ahead->directories; i++)
		close(ahead->directory[i].fd);
	ahead->directories = 0;
}

/* ---- recording --------------------------------------------------------------------------------- */

static void add(struct ahead *ahead, const struct ce_read *read)
{
	size_t i = 0;

	while (i < ahead->count &&
	       (ahead->read[i].node != read->node || memcmp(&ahead->read[i], read, sizeof *read) != 0))
		i++;
	if (i == ahead->count && i < MOST_READS && is_sound(read))
		ahead->read[ahead->count++] = *read;
	else if (i < ahead->before && read->name[0] == '\0' && !ahead->again[i]) {
		ahead->again[i] = true;
		if (++ahead->same == LEAST_SAME)
			follow(ahead);
	}
}

static void *read_ahead(void *context)
{
	struct ahead *ahead = context;
	struct ce_read told[256];
	struct pollfd reads = { .fd = ahead->reads, .events = POLLIN };
	int quiet_ms = QUIET_MS;
	ssize_t size = 1;

	load(ahead);
	size_t saved = ahead->count;
	while (ahead->count < MOST_READS && size > 0) {
		/* it is written as a whole: seldom while much is read, or a little again and again */
		bool has_grown = ahead->count - saved > ahead->count / 8;
		if (has_grown || (ahead->count > saved && poll(&reads, 1, quiet_ms) == 0)) {
			save(ahead);
			saved = ahead->count;
			if (!has_grown && quiet_ms < LONGEST_QUIET_MS)
				quiet_ms *= 2;
		}
		size = read(ahead->reads, told, sizeof told);
		for (ssize_t i = 0; i < size / (ssize_t)sizeof told[0]; i++)
			add(ahead, &told[i]);
		poll(NULL, 0, PAUSE_MS);
	}
	if (ahead->count > saved)
		save(ahead);
	release(ahead);
	return NULL;
}

int guard_read_ahead(const char *image, const char *place)
{
	struct ahead *ahead = calloc(1, sizeof *ahead);
	int ends[2] = { -1, -1 };
	pthread_t thread;

	if (ahead == NULL)
		return -1;
	bool has_pipe = pipe2(ends, O_CLOEXEC) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0;
	(void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* if it stays smaller, the record is shorter */
	ahead->reads = ends[0];
	ahead->place = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ahead->records = open_records();
	ahead->request = guard_describe_image(image);
	if (has_pipe && ahead->place >= 0 && ahead->records >= 0 && ahead->request != NULL) {
		snprintf(ahead->name, sizeof ahead->name, "%u",
			 ce_crc(0, ahead->request, strlen(ahead->request)) % RECORDS);
		if (pthread_create(&thread, NULL, read_ahead, ahead) == 0) {
			(void)pthread_detach(thread);
			return ends[1];
		}
	}
	ce_close_fd(&ends[1]);
	release(ahead);
	return -1;
}
