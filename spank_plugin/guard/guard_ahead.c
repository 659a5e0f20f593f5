/*
 * Reads an image ahead. A new mount has nothing in the kernel's page cache, so its first program waits for
 * each block. A thread records which pieces the kernel reads from a mount, and asks for them at the next
 * mount, as soon as a program begins to read them again. All that a record can cause is reading: whatever it
 * says, the kernel takes the pieces from this image's mount, and forgets them when memory is short.
 */
#define _GNU_SOURCE
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

/* A program that reads more than this reads data. A record's name is a number below RECORDS: an image may
 * replace another one's. */
enum { MOST_PIECES = 4096, RECORDS = 16 };
/* A shell and small commands read fewer pieces again, Python more before its first import. */
enum { LEAST_SAME = 48 };
enum { PAUSE_MS = 5 }; /* between two looks at the pipe */

struct ahead {
	char *request;	      /* which image it is (guard_describe_image) */
	int place;	      /* its mount */
	int reads;	      /* the pipe of its server */
	int records;	      /* the directory of records */
	char name[16];	      /* the record's */
	size_t count, before; /* how many pieces there are, and how many of them were recorded before */
	size_t same;	      /* how many of those have been read again */
	uint64_t piece[MOST_PIECES];
	bool again[MOST_PIECES];
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

/* Take the record: a checksum of what follows, the request with its NUL, the pieces. */
static void load(struct ahead *ahead)
{
	size_t size = 0, head = sizeof(uint32_t) + strlen(ahead->request) + 1;
	CE_AUTO_FREE char *text =
		ce_read_own(ahead->records, ahead->name, geteuid(), head + sizeof ahead->piece, &size);
	uint32_t sum;

	if (text == NULL || size < head || (size - head) % sizeof ahead->piece[0] != 0)
		return;
	memcpy(&sum, text, sizeof sum);
	if (sum != ce_crc(0, text + sizeof sum, size - sizeof sum) ||
	    memcmp(text + sizeof sum, ahead->request, head - sizeof sum) != 0)
		return;
	ahead->count = ahead->before = (size - head) / sizeof ahead->piece[0];
	memcpy(ahead->piece, text + head, size - head);
}

/* Write the record. A part of one has another checksum. */
static void save(const struct ahead *ahead)
{
	size_t named = strlen(ahead->request) + 1, size = ahead->count * sizeof ahead->piece[0];
	uint32_t sum = ce_crc(ce_crc(0, ahead->request, named), ahead->piece, size);
	CE_AUTO_FD fd = openat(ahead->records, ahead->name,
			       O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0 && ahead->count < MOST_PIECES && ce_write_all(fd, &sum, sizeof sum) == 0 &&
	    ce_write_all(fd, ahead->request, named) == 0)
		(void)ce_write_all(fd, ahead->piece, size);
}

/* Let the kernel read what was recorded before, within an eighth of the job's memory. It does so in the
 * background, and leaves out what it has. */
static void follow(const struct ahead *ahead)
{
	int64_t room = guard_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup") / 8;
	char name[64];

	for (size_t i = 0; i < ahead->before && room > 0; i++, room -= CE_READ_PIECE) {
		uint64_t inode = ahead->piece[i] >> CE_READ_BITS;
		snprintf(name, sizeof name, CE_READ_NAME "%llx", (unsigned long long)inode);
		CE_AUTO_FD file = openat(ahead->place, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (file >= 0)
			(void)posix_fadvise(
				file, (off_t)(ahead->piece[i] % CE_READ_MOST * CE_READ_PIECE),
				CE_READ_PIECE, POSIX_FADV_WILLNEED);
	}
}

static void add(struct ahead *ahead, uint64_t piece)
{
	size_t i = 0;

	while (i < ahead->count && ahead->piece[i] != piece)
		i++;
	if (i == ahead->count && i < MOST_PIECES)
		ahead->piece[ahead->count++] = piece;
	else if (i < ahead->before && !ahead->again[i]) {
		ahead->again[i] = true;
		if (++ahead->same == LEAST_SAME)
			follow(ahead);
	}
}

static void *read_ahead(void *context)
{
	struct ahead *ahead = context;
	uint64_t pieces[512];
	ssize_t size;

	load(ahead);
	while (ahead->count < MOST_PIECES && (size = read(ahead->reads, pieces, sizeof pieces)) > 0) {
		size_t count = ahead->count;
		for (size_t i = 0; i < (size_t)size / sizeof pieces[0]; i++)
			add(ahead, pieces[i]);
		if (ahead->count > count)
			save(ahead);
		poll(NULL, 0, PAUSE_MS);
	}
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
