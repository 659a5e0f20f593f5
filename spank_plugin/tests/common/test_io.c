#define _GNU_SOURCE
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "harness.h"

static void make_pair(int pair[2])
{
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

/* Send a packet with any number of descriptors, also more than ce_send would. */
static void send_raw(int socket, const char *text, size_t count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * 64)];
		struct cmsghdr align;
	} control = { .bytes = { 0 } };
	struct iovec part = { .iov_base = (char *)text, .iov_len = strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = CMSG_SPACE(sizeof(int) * count) };
	int fds[64];

	CHECK(count <= 64);
	for (size_t i = 0; i < count; i++)
		fds[i] = STDOUT_FILENO;
	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(sizeof(int) * count);
	memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * count);
	CHECK_INT(sendmsg(socket, &message, 0), strlen(text));
}

TEST("a descriptor given by its number is close-on-exec from then on")
{
	int fd = dup(STDIN_FILENO);
	char number[16];

	CHECK(fd >= 0);
	snprintf(number, sizeof number, "%d", fd);
	CHECK_INT(ce_descriptor(number), fd);
	CHECK_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	CHECK_INT(ce_descriptor(number), -1);
}

TEST("a text that is not the number of an open descriptor is refused")
{
	static const char *const bad[] = { "", "-1", "0x", "1 ", "x", "4294967296", "2147483647" };

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		CHECK_INT(ce_descriptor(bad[i]), -1);
}

TEST("a packet arrives with its descriptors, close-on-exec and in order")
{
	int pair[2], fds[CE_MAX_FDS];
	char data[16] = "";
	struct stat sent, got;

	make_pair(pair);
	int file = ce_memory_file("x", "content", 7);
	int both[] = { STDIN_FILENO, file };
	CHECK_INT(ce_send(pair[0], "hello", 5, both, 2), 0);
	CHECK_INT(ce_receive(pair[1], 0, data, sizeof data, fds), 5);
	CHECK_TEXT(data, "hello");
	CHECK(fds[0] >= 0 && fds[1] >= 0);
	CHECK_INT(fds[2], -1);
	CHECK_INT(fds[3], -1);
	CHECK_INT(fstat(file, &sent), 0);
	CHECK_INT(fstat(fds[1], &got), 0);
	CHECK_INT(got.st_ino, sent.st_ino);
	CHECK_INT(fcntl(fds[1], F_GETFD), FD_CLOEXEC);
}

TEST("a packet that is only looked at gives everybody descriptors of their own")
{
	int pair[2], first[CE_MAX_FDS], second[CE_MAX_FDS];
	char data[4];

	make_pair(pair);
	int all[CE_MAX_FDS] = { 0, 1, 2, 0, 1 };
	CHECK_INT(ce_send(pair[0], "R", 1, all, CE_MAX_FDS), 0);
	CHECK_INT(ce_receive(pair[1], MSG_PEEK, data, sizeof data, first), 1);
	CHECK_INT(ce_receive(pair[1], MSG_PEEK, data, sizeof data, second), 1);
	for (int i = 0; i < CE_MAX_FDS; i++)
		CHECK(first[i] >= 0 && second[i] >= 0 && first[i] != second[i]);
}

TEST("a packet with too many descriptors is refused and none of them stays open")
{
	for (size_t count = CE_MAX_FDS + 1; count <= 64; count += 13) {
		int pair[2], fds[CE_MAX_FDS];
		char data[16];
		make_pair(pair);
		send_raw(pair[0], "x", count);
		int before = test_open_fds();
		CHECK_INT(ce_receive(pair[1], 0, data, sizeof data, fds), -1);
		CHECK_INT(errno, EBADMSG);
		CHECK_INT(test_open_fds(), before);
		for (int i = 0; i < CE_MAX_FDS; i++)
			CHECK_INT(fds[i], -1);
	}
}

TEST("a packet that does not fit is refused and its descriptors are closed")
{
	int pair[2], fds[CE_MAX_FDS], one = STDIN_FILENO;
	char data[4];

	make_pair(pair);
	CHECK_INT(ce_send(pair[0], "too long", 8, &one, 1), 0);
	int before = test_open_fds();
	CHECK_INT(ce_receive(pair[1], 0, data, sizeof data, fds), -1);
	CHECK_INT(errno, EBADMSG);
	CHECK_INT(test_open_fds(), before);
	CHECK_INT(fds[0], -1);
}

TEST("a closed socket reads as 0, an empty one that must not block as EAGAIN")
{
	int pair[2], fds[CE_MAX_FDS];
	char data[4];

	make_pair(pair);
	CHECK_INT(ce_receive(pair[1], MSG_DONTWAIT, data, sizeof data, fds), -1);
	CHECK_INT(errno, EAGAIN);
	close(pair[0]);
	CHECK_INT(ce_receive(pair[1], 0, data, sizeof data, fds), 0);
}

TEST("sending to a closed socket is an error and no signal")
{
	int pair[2];

	make_pair(pair);
	close(pair[1]);
	CHECK_INT(ce_send(pair[0], "x", 1, NULL, 0), -1);
	CHECK_INT(errno, EPIPE);
}

TEST("more descriptors than a packet may carry are not sent")
{
	int pair[2], fds[CE_MAX_FDS + 1] = { 0 };

	make_pair(pair);
	CHECK_INT(ce_send(pair[0], "x", 1, fds, CE_MAX_FDS + 1), -1);
	CHECK_INT(errno, EINVAL);
}

static char *read_memory(size_t content, size_t limit, size_t *size)
{
	char *data = malloc(content + 1);

	CHECK(data != NULL);
	memset(data, 'x', content + 1);
	int fd = ce_memory_file("x", data, content);
	CHECK(fd >= 0);
	free(data);
	char *text = ce_read_all(fd, limit, size);
	int keep = errno;
	close(fd);
	errno = keep;
	return text;
}

TEST("a file is read whole up to exactly the limit")
{
	static const size_t sizes[] = { 0, 1, 16383, 16384, 16385, 32768, 100000, 1 << 20 };

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		size_t size = 99;
		char *text = read_memory(sizes[i], sizes[i], &size);
		CHECK(text != NULL);
		CHECK_INT(size, sizes[i]);
		CHECK_INT(strlen(text), sizes[i]);
		free(text);
	}
}

TEST("a file beyond the limit is EFBIG, not cut short")
{
	static const size_t limits[] = { 0, 1, 64, 16383, 16384, 16385, 32768, 1 << 20 };

	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
		size_t size;
		CHECK(read_memory(limits[i] + 1, limits[i], &size) == NULL);
		CHECK_INT(errno, EFBIG);
	}
}

TEST("a file read at its start keeps the offset that others share")
{
	size_t size;
	int fd = ce_memory_file("x", "0123456789", 10);

	CHECK_INT(lseek(fd, 7, SEEK_SET), 7);
	char *text = ce_read_file_at(fd, 100, &size);
	CHECK_TEXT(text, "0123456789");
	CHECK_INT(lseek(fd, 0, SEEK_CUR), 7);
	free(text);
	text = ce_read_all(fd, 100, &size);
	CHECK_TEXT(text, "789");
	free(text);
}

TEST("a descriptor that cannot be read is an error")
{
	size_t size;
	int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(ce_read_all(directory, 100, &size) == NULL);
	CHECK_INT(errno, EISDIR);
	CHECK(ce_read_all(-1, 100, &size) == NULL);
	CHECK_INT(errno, EBADF);
}

static void ignore_signal(int number)
{
	(void)number;
}

TEST("a write goes on after signals and short writes")
{
	enum { SIZE = 1 << 20 };
	struct sigaction action = { .sa_handler = ignore_signal };
	int ends[2], status;
	static char data[SIZE];

	CHECK_INT(pipe(ends), 0);
	sigaction(SIGUSR1, &action, NULL);
	memset(data, 'y', SIZE);
	pid_t writer = fork();
	CHECK(writer >= 0);
	if (writer == 0) {
		close(ends[0]);
		_exit(ce_write_all(ends[1], data, SIZE) == 0 ? 0 : 1);
	}
	close(ends[1]);
	size_t total = 0;
	ssize_t n;
	char block[5000];
	while ((n = read(ends[0], block, sizeof block)) > 0) {
		total += (size_t)n;
		kill(writer, SIGUSR1);
	}
	CHECK_INT(waitpid(writer, &status, 0), writer);
	CHECK_INT(status, 0);
	CHECK_INT(total, SIZE);
}

TEST("a write that fails says so")
{
	CHECK_INT(ce_write_all(-1, "x", 1), -1);
	CHECK_INT(errno, EBADF);
	CHECK_INT(ce_write_all(-1, "", 0), 0);
}

TEST("signals with a handler get their default action, ignored ones stay ignored")
{
	struct sigaction action;

	signal(SIGTERM, ignore_signal);
	signal(SIGUSR1, SIG_IGN);
	ce_drop_handlers();
	CHECK_INT(sigaction(SIGTERM, NULL, &action), 0);
	CHECK(action.sa_handler == SIG_DFL);
	CHECK_INT(sigaction(SIGUSR1, NULL, &action), 0);
	CHECK(action.sa_handler == SIG_IGN);
}

TEST("a memory file is close-on-exec and at its start")
{
	int fd = ce_memory_file("x", "abc", 3);

	CHECK(fd >= 0);
	CHECK_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_INT(lseek(fd, 0, SEEK_CUR), 0);
	CHECK_INT(lseek(fd, 0, SEEK_END), 3);
}

TEST("a descriptor of a scope is closed once")
{
	int number;
	{
		CE_AUTO_FD fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		number = fd;
	}
	CHECK_INT(fcntl(number, F_GETFD), -1);
	int none = -1;
	ce_close_fd(&none);
	CHECK_INT(none, -1);
}

TEST("a pidfd kills its process and no other")
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	int pidfd = ce_pidfd_open(pid);
	CHECK(pidfd >= 0);
	CHECK_INT(ce_pidfd_kill(pidfd, SIGKILL), 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK_INT(ce_pidfd_kill(pidfd, SIGKILL), -1);
	CHECK_INT(errno, ESRCH);
}

TEST("a path of mountinfo is decoded where three octal digits follow a backslash")
{
	char path[] = "/a\\040b\\134\\011c", cut[] = "/x\\04", other[] = "/\\0989\\";

	ce_unescape_mount(path);
	CHECK_TEXT(path, "/a b\\\tc");
	ce_unescape_mount(cut);
	CHECK_TEXT(cut, "/x\\04");
	ce_unescape_mount(other);
	CHECK_TEXT(other, "/\\0989\\");
}
