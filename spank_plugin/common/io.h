/* Descriptors: scoped closing, whole reads and writes, memory files, packets with descriptors. */
#ifndef CE_IO_H
#define CE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define CE_MAX_FDS 8

static inline void ce_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static inline void ce_free_ptr(void *pointer)
{
	free(*(void **)pointer);
}

#define CE_AUTO_FD __attribute__((cleanup(ce_close_fd))) int
#define CE_AUTO_FREE __attribute__((cleanup(ce_free_ptr)))

/* An open descriptor by its number in decimal, as a program is given one; it becomes close-on-exec. -1 for
 * anything else. */
int ce_descriptor(const char *text);

/* All of it, or -1 with errno; interrupted and short writes are continued. */
int ce_write_all(int fd, const void *data, size_t size);

/* Reads fd from its current position to its end into a heap buffer that the caller frees; one NUL
 * byte follows the data. NULL with errno on failure; EFBIG beyond `limit` bytes. */
char *ce_read_all(int fd, size_t limit, size_t *size);

/* The whole of a seekable file from offset 0, without moving the offset that other processes may
 * share. Ownership and failure as ce_read_all. */
char *ce_read_file_at(int fd, size_t limit, size_t *size);

/* A memory file with this content, positioned at its start; close-on-exec. -1 with errno. */
int ce_memory_file(const char *name, const void *data, size_t size);

/* Signals that a user sends to a step (scancel, Ctrl-C, a time limit) are for its tasks. What holds
 * their container ignores them, on systems where Slurm reaches it too. */
void ce_ignore_step_signals(void);

/* All signals to their defaults, none blocked. */
void ce_default_signals(void);

/* Signals with a handler to their defaults; those ignored or blocked stay so, as over an execve. */
void ce_drop_handlers(void);

/* The monotonic clock in milliseconds. */
int64_t ce_now_ms(void);

/* 1 when fd is readable or closed, 0 when it is not at this time of ce_now_ms. */
int ce_wait_readable(int fd, int64_t deadline_ms);

int ce_pidfd_open(pid_t pid);
int ce_pidfd_kill(int pidfd, int signal);

/* One packet of a SOCK_SEQPACKET socket. `fds` receives up to CE_MAX_FDS descriptors, all
 * close-on-exec, and -1 in the places not used. Returns the number of bytes, 0 when the other end
 * is closed, -1 with errno. EBADMSG: a packet that is cut or carries too many descriptors. */
ssize_t ce_receive(int socket, int flags, void *data, size_t size, int fds[CE_MAX_FDS]);

/* The first bytes of the next packet, which stays; its descriptors are not received. Waits for one
 * unless `flags` has MSG_DONTWAIT. Returns as ce_receive, with what fits into `size`. */
ssize_t ce_look(int socket, int flags, void *data, size_t size);

/* Sends one packet with `count` descriptors (at most CE_MAX_FDS). -1 with errno. */
int ce_send(int socket, const void *data, size_t size, const int *fds, size_t count);

#endif
