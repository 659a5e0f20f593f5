#define _GNU_SOURCE
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int ce_descriptor(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < 0 || value > INT_MAX ||
	    fcntl((int)value, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return (int)value;
}

int ce_write_all(int fd, const void *data, size_t size)
{
	const char *next = data;

	while (size > 0) {
		ssize_t n = write(fd, next, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		next += n;
		size -= (size_t)n;
	}
	return 0;
}

/* Return the buffer with twice the capacity, and room for one byte more. Return NULL with errno on failure:
 * the old buffer then remains the caller's. */
static char *grow(char *buffer, size_t *capacity, size_t limit)
{
	if (*capacity > limit) {
		errno = EFBIG;
		return NULL;
	}
	char *moved = realloc(buffer, *capacity * 2 + 1);
	if (moved != NULL)
		*capacity *= 2;
	return moved;
}

static char *read_from(int fd, int seekable, size_t limit, size_t *size)
{
	size_t capacity = 16384, used = 0;
	/* malloc, not realloc: GCC's analyzer loses track of what realloc(NULL) returns */
	CE_AUTO_FREE char *buffer = malloc(capacity + 1);

	if (buffer == NULL)
		return NULL;
	for (;;) {
		if (used == capacity) {
			char *larger = grow(buffer, &capacity, limit);
			if (larger == NULL)
				return NULL;
			buffer = larger;
		}
		ssize_t n = seekable ? pread(fd, buffer + used, capacity - used, (off_t)used)
				     : read(fd, buffer + used, capacity - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return NULL;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	if (used > limit) {
		errno = EFBIG;
		return NULL;
	}
	buffer[used] = '\0';
	if (size != NULL)
		*size = used;
	char *result = buffer;
	buffer = NULL;
	return result;
}

char *ce_read_all(int fd, size_t limit, size_t *size)
{
	return read_from(fd, 0, limit, size);
}

char *ce_read_file_at(int fd, size_t limit, size_t *size)
{
	return read_from(fd, 1, limit, size);
}

char *ce_read_path(int at, const char *path, int flags, size_t limit, size_t *size)
{
	CE_AUTO_FD fd = openat(at, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);

	return fd >= 0 ? ce_read_all(fd, limit, size) : NULL;
}

const char *ce_next_name(DIR *dir)
{
	const struct dirent *entry;

	do {
		entry = dir != NULL ? readdir(dir) : NULL;
	} while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
	return entry != NULL ? entry->d_name : NULL;
}

int ce_make_parents(const char *path, mode_t mode)
{
	char parent[PATH_MAX];

	if ((size_t)snprintf(parent, sizeof parent, "%s", path) >= sizeof parent) {
		errno = ENAMETOOLONG;
		return -1;
	}
	char *first = strchr(parent + (parent[0] == '/'), '/');
	for (char *slash = first; slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		int number = mkdir(parent, mode) < 0 ? errno : 0;
		if (number != 0 && number != EEXIST && access(parent, F_OK) < 0) {
			errno = number;
			return -1;
		}
		*slash = '/';
	}
	return 0;
}

int ce_memory_file(const char *name, const void *data, size_t size)
{
	CE_AUTO_FD fd = memfd_create(name, MFD_CLOEXEC);

	if (fd < 0 || ce_write_all(fd, data, size) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	return ce_release_fd(&fd);
}

void ce_default_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void ce_drop_handlers(void)
{
	struct sigaction action;

	for (int number = 1; number < NSIG; number++) {
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN &&
		    action.sa_handler != SIG_DFL)
			signal(number, SIG_DFL);
	}
}

void ce_ignore_step_signals(void)
{
	static const int numbers[] = { SIGHUP,	SIGINT,	 SIGQUIT, SIGTERM,
				       SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU };

	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		signal(numbers[i], SIG_IGN);
}

long long ce_in_ns(struct timespec time)
{
	return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t ce_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return ce_in_ns(now);
}

int64_t ce_now_ms(void)
{
	return ce_clock_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t ce_now_ns(void)
{
	return ce_clock_ns(CLOCK_REALTIME);
}

int ce_wait_readable(int fd, int64_t deadline_ms)
{
	return ce_wait_either(fd, -1, deadline_ms);
}

int ce_wait_either(int fd, int other, int64_t deadline_ms)
{
	for (;;) {
		int64_t left = deadline_ms - ce_now_ms();
		struct pollfd entries[] = { { .fd = fd, .events = POLLIN },
					    { .fd = other, .events = POLLIN } };
		int rc = poll(entries, 2, left > 0 ? (int)left : 0);
		if (rc > 0)
			return 1;
		if (rc == 0 || errno != EINTR)
			return 0;
	}
}

int ce_await_child(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1;
	}
	return status;
}

int ce_pidfd_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

int ce_pidfd_kill(int pidfd, int signal)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* Take the descriptors out of one control message; close those that do not fit, and return whether all
 * did. */
static int take_fds(const struct cmsghdr *message, int fds[CE_MAX_FDS])
{
	size_t count = (message->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	int fits = 1;

	for (size_t i = 0; i < count; i++) {
		int fd;
		memcpy(&fd, CMSG_DATA(message) + i * sizeof(int), sizeof fd);
		if (i < CE_MAX_FDS && fds[i] < 0) {
			fds[i] = fd;
		} else {
			close(fd);
			fits = 0;
		}
	}
	return fits;
}

ssize_t ce_receive(int socket, int flags, void *data, size_t size, int fds[CE_MAX_FDS])
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * CE_MAX_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = data, .iov_len = size };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = sizeof control.bytes };
	ssize_t n;
	int whole = 1;

	for (size_t i = 0; i < CE_MAX_FDS; i++)
		fds[i] = -1;
	do {
		n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			whole = take_fds(c, fds) && whole;
	}
	if (!whole || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
		for (size_t i = 0; i < CE_MAX_FDS; i++)
			ce_close_fd(&fds[i]);
		errno = EBADMSG;
		return -1;
	}
	return n;
}

ssize_t ce_look(int socket, int flags, void *data, size_t size)
{
	ssize_t n;

	/* without room for control data, the kernel does not pass on the descriptors */
	do {
		n = recv(socket, data, size, flags | MSG_PEEK);
	} while (n < 0 && errno == EINTR);
	return n;
}

int ce_send(int socket, const void *data, size_t size, const int *fds, size_t count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * CE_MAX_FDS)];
		struct cmsghdr align;
	} control = { .bytes = { 0 } };
	struct iovec part = { .iov_base = (void *)data, .iov_len = size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	if (count > CE_MAX_FDS) {
		errno = EINVAL;
		return -1;
	}
	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		struct cmsghdr *c = &control.align;
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
	}
	do {
		n = sendmsg(socket, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

int ce_open_own(int at, const char *path, uid_t uid, mode_t others)
{
	CE_AUTO_FD fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat found;

	if (fd < 0 || fstat(fd, &found) < 0 || found.st_uid != uid || (found.st_mode & others) != 0)
		return -1;
	return ce_release_fd(&fd);
}

char *ce_read_own(int at, const char *path, uid_t uid, size_t limit, size_t *size)
{
	CE_AUTO_FD fd = openat(at, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat found;

	if (fd < 0 || fstat(fd, &found) < 0 || !S_ISREG(found.st_mode) || found.st_uid != uid ||
	    (found.st_mode & 077) != 0)
		return NULL;
	return ce_read_all(fd, limit, size);
}

void ce_unescape_mount(char *path)
{
	char *to = path;

	for (const char *from = path; *from != '\0'; from++) {
		if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3) {
			*to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}
