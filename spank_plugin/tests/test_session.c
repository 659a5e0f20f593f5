#define _GNU_SOURCE
#include "../session.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../io.h"
#include "harness.h"

static struct ce_launcher launcher = CE_LAUNCHER_INIT;
static struct ce_container container = CE_CONTAINER_INIT;
static struct ce_error err = CE_ERROR_INIT;
static int their_reply, their_life; /* the ends that the launcher and the guard would hold */

static void connect_launcher(void)
{
	int reply[2], life[2];

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, reply), 0);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, life), 0);
	launcher = (struct ce_launcher){ .reply = reply[0], .life = life[0], .process = -1 };
	their_reply = reply[1];
	their_life = life[1];
}

static void answer(const char *text, size_t fd_count)
{
	int fds[CE_MAX_FDS];

	for (size_t i = 0; i < CE_MAX_FDS; i++)
		fds[i] = STDOUT_FILENO;
	CHECK_INT(ce_send(their_reply, text, strlen(text), fds, fd_count), 0);
}

static void fails(const char *why, int code)
{
	CHECK_INT(ce_session_wait(&launcher, 5, &container, &err), -1);
	CHECK_TEXT(ce_error_text(&err), why);
	CHECK_INT(err.exit_code, code);
	ce_error_clear(&err);
	ce_container_close(&container);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

TEST("a ready answer gives the descriptors and the working directory, to every task")
{
	connect_launcher();
	answer("R/work dir\n", 4);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(ce_session_wait(&launcher, 5, &container, &err), 0);
		CHECK_TEXT(container.workdir, "/work dir\n");
		CHECK(container.user_ns >= 0 && container.mount_ns >= 0);
		CHECK(container.environment >= 0 && container.guard >= 0);
		ce_container_close(&container);
	}
}

TEST("a failure is the launcher's message with its exit code")
{
	connect_launcher();
	answer("F127\nimage '/x': does not exist", 0);
	fails("image '/x': does not exist", 127);
	fails("image '/x': does not exist", 127);
}

TEST("a failure keeps all lines of its message")
{
	connect_launcher();
	answer("F125\nfirst\nsecond", 0);
	fails("first\nsecond", 125);
}

TEST("an exit code that is none becomes 125")
{
	static const char *const codes[] = { "F0\nwhy", "F256\nwhy", "F-1\nwhy", "F\nwhy", "Fx\nwhy" };

	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
		connect_launcher();
		answer(codes[i], 0);
		fails("why", 125);
	}
}

TEST("an answer of one letter is not read beyond its end")
{
	connect_launcher();
	answer("F", 0);
	fails("", 125);
	connect_launcher();
	answer("?", 0);
	fails("", 125);
}

TEST("a ready answer without all its descriptors is refused and none stays open")
{
	for (size_t count = 0; count < 4; count++) {
		connect_launcher();
		answer("R/", count);
		int before = test_open_fds();
		fails("the launcher's answer is not complete", 125);
		CHECK_INT(test_open_fds(), before);
	}
}

TEST("descriptors of a failure are closed")
{
	connect_launcher();
	answer("F125\nwhy", 4);
	int before = test_open_fds();
	fails("why", 125);
	CHECK_INT(test_open_fds(), before);
}

TEST("a launcher that ended without an answer is named")
{
	connect_launcher();
	close(their_reply);
	fails("the launcher ended before the container was ready", 125);
}

TEST("an answer larger than any of ours is refused")
{
	static char text[70000];

	connect_launcher();
	memset(text, 'R', sizeof text - 1);
	answer(text, 0);
	fails("cannot read the launcher's answer: Bad message", 125);
}

TEST("a container that has ended since is not joined")
{
	connect_launcher();
	answer("R/", 4);
	close(their_life);
	fails("the container ended before the task could join it", 125);
}

TEST("a launcher that never answers is waited for until the deadline and no longer")
{
	connect_launcher();
	int64_t begin = now_ms();
	CHECK_INT(ce_session_wait(&launcher, 1, &container, &err), -1);
	CHECK(now_ms() - begin >= 990);
	CHECK_TEXT(ce_error_text(&err), "the container did not start within 1 s");
	ce_error_clear(&err);
}

static void ignore_signal(int number)
{
	(void)number;
}

TEST("signals neither end the wait nor prolong it")
{
	struct sigaction action = { .sa_handler = ignore_signal };
	int status;

	connect_launcher();
	sigaction(SIGUSR1, &action, NULL);
	pid_t waiter = getpid(), pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		for (int i = 0; i < 200; i++) {
			kill(waiter, SIGUSR1);
			usleep(10000);
		}
		_exit(0);
	}
	int64_t begin = now_ms();
	CHECK_INT(ce_session_wait(&launcher, 1, &container, &err), -1);
	int64_t took = now_ms() - begin;
	CHECK(took >= 990 && took < 1900);
	signal(SIGUSR1, SIG_IGN);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	ce_error_clear(&err);
}

TEST("the end of a session that never started waits for nothing")
{
	ce_session_end(&launcher);
	connect_launcher();
	int64_t begin = now_ms();
	ce_session_end(&launcher);
	CHECK(now_ms() - begin < 1000);
	CHECK_INT(launcher.reply, -1);
	CHECK_INT(launcher.life, -1);
}

TEST("a guard that does not hear is killed at the end, and its end is waited for")
{
	char byte;
	int status;

	connect_launcher();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(launcher.life);
		pause();
		_exit(0);
	}
	CE_AUTO_FD guard = ce_pidfd_open(pid);
	int fds[] = { STDIN_FILENO, STDIN_FILENO, STDIN_FILENO, guard };
	CHECK_INT(ce_send(their_reply, "R/", 2, fds, 4), 0);
	ce_session_end(&launcher);
	/* the end was asked for in the ordinary way first */
	CHECK_INT(recv(their_life, &byte, 1, MSG_DONTWAIT), 0);
	CHECK_INT(waitpid(pid, &status, WNOHANG), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
