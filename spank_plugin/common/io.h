/* Descriptors: scoped closing, complete reads and writes, memory files, packets with descriptors.
 * Time limits are in milliseconds. */
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define CE_MAX_FDS 16

static inline void ce_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Return the descriptor and take it from its variable, so that the end of the scope does not close it. */
static inline int ce_release_fd(int *fd)
{
	int released = *fd;

	*fd = -1;
	return released;
}

static inline void ce_close_all(int fds[CE_MAX_FDS])
{
	for (size_t i = 0; i < CE_MAX_FDS; i++)
		ce_close_fd(&fds[i]);
}

/* Return how many descriptors ce_receive has put into the array. */
static inline size_t ce_count_fds(const int fds[CE_MAX_FDS])
{
	size_t count = 0;

	while (count < CE_MAX_FDS && fds[count] >= 0)
		count++;
	return count;
}

static inline void ce_close_dir(DIR **dir)
{
	if (*dir != NULL)
		closedir(*dir);
}

static inline void ce_free_ptr(void *pointer)
{
	free(*(void **)pointer);
}

#define CE_AUTO_FD __attribute__((cleanup(ce_close_fd))) int
#define CE_AUTO_FREE __attribute__((cleanup(ce_free_ptr)))
#define CE_AUTO_DIR __attribute__((cleanup(ce_close_dir))) DIR

/* Return the open descriptor whose decimal number is `text`, as passed to a program as an argument, and make
 * it close-on-exec. Return -1 for anything else. */
int ce_descriptor(const char *text);

/* Decode a path of mountinfo in place: a space, a tab, a newline and a backslash are a backslash and three
 * octal digits there. */
void ce_unescape_mount(char *path);

/* Write all of the data, continuing after interrupted and short writes. Return 0, or -1 with errno. */
int ce_write_all(int fd, const void *data, size_t size);

/* Read fd from its current position to its end into a heap buffer that the caller frees; one NUL byte follows
 * the data. `size` may be NULL. Return NULL with errno on failure; EFBIG beyond `limit` bytes. */
char *ce_read_all(int fd, size_t limit, size_t *size);

/* Read a seekable file from offset 0 to its end, without moving the offset, which other processes may share.
 * Ownership and failure as for ce_read_all. */
char *ce_read_file_at(int fd, size_t limit, size_t *size);

/* Read the file at `path`, relative to the descriptor `at`; `flags` is O_NOFOLLOW or 0. A FIFO is not waited
 * for. Ownership and failure as for ce_read_all. */
char *ce_read_path(int at, const char *path, int flags, size_t limit, size_t *size);

/* Return the next name in a directory, without "." and ".."; NULL at its end, or if `dir` is NULL. */
const char *ce_next_name(DIR *dir);

/* Make the directories above `path` that are not there. Return 0, or -1 with errno. */
int ce_make_parents(const char *path, mode_t mode);

/* Create a memory file with this content, positioned at its start; close-on-exec. Return
 * -1 with errno on failure. */
int ce_memory_file(const char *name, const void *data, size_t size);

/* Ignore the signals that a user sends to a step (scancel, Ctrl-C, a time limit): they are meant for the
 * tasks. On some systems Slurm also delivers them to the processes that hold the tasks' container. */
void ce_ignore_step_signals(void);

/* Reset all signals to their defaults and unblock them. */
void ce_default_signals(void);

/* Reset signals that have a handler to their defaults; ignored or blocked signals
 * stay so, as across an execve. */
void ce_drop_handlers(void);

/* Return the monotonic clock in milliseconds. */
int64_t ce_now_ms(void);
/* Return the current time in nanoseconds since 1970. */
int64_t ce_now_ns(void);
/* Return a clock's time, or a file's, in nanoseconds. */
int64_t ce_clock_ns(clockid_t clock);
long long ce_in_ns(struct timespec time);

/* Wait until fd is readable or closed and return 1. Return 0 once ce_now_ms reaches the deadline, or if poll
 * fails. Descriptor -1 never becomes readable. */
int ce_wait_readable(int fd, int64_t deadline_ms);

/* Wait for either of two descriptors, as ce_wait_readable does for one. */
int ce_wait_either(int fd, int other, int64_t deadline_ms);

/* Wait for the end of a child. Return its wait status, -1 if it is no child. */
int ce_await_child(pid_t pid);

/* Return a close-on-exec pidfd, or -1 with errno. */
int ce_pidfd_open(pid_t pid);
/* Send a signal. Return 0, or -1 with errno. */
int ce_pidfd_kill(int pidfd, int signal);

/* Receive one packet of a SOCK_SEQPACKET socket. `fds` receives up to CE_MAX_FDS descriptors, all
 * close-on-exec, and -1 in the unused places. Return the number of bytes, 0 when the other end is closed, -1
 * with errno. EBADMSG: the packet is truncated or carries too many descriptors. */
ssize_t ce_receive(int socket, int flags, void *data, size_t size, int fds[CE_MAX_FDS]);

/* Peek at the first bytes of the next packet, which stays in the queue; its descriptors are not
 * received. Wait for a packet unless `flags` has MSG_DONTWAIT. Return as ce_receive, with as many
 * bytes as fit into `size`. */
ssize_t ce_look(int socket, int flags, void *data, size_t size);

/* Send one packet with `count` descriptors (at most CE_MAX_FDS). Return 0, or -1 with errno. */
int ce_send(int socket, const void *data, size_t size, const int *fds, size_t count);

/* Open a directory, relative to the descriptor `at`. Return -1 unless it belongs to `uid`, is not a symlink
 * and has none of the mode bits `others`. */
int ce_open_own(int at, const char *path, uid_t uid, mode_t others);

/* Return the content of a regular file, relative to the descriptor `at`, on the heap with a NUL after it; the
 * caller frees it. Return NULL if it cannot be read, is a symlink, does not belong to `uid`, has any mode
 * bits for group or others, or is longer than `limit`. */
char *ce_read_own(int at, const char *path, uid_t uid, size_t limit, size_t *size);
