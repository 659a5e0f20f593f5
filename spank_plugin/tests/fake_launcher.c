/*
 * Replaces the node launcher, so that the tests can see what a launcher gets, and can make it end in every
 * way. The plan is a word that selects what it does:
 *
 *   report    answers with what this process is and has, one `key=value` a line
 *   ready     starts a container (a process in namespaces of its own, like the guard's) and answers
 *   fail      answers with an error and exit code 126
 *   mute      ends without an answer
 *   hang      never answers, and ends when nobody waits for it any more
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/protocol.h"

extern char **environ;

static int fds[CE_ARG_FDS];

static void need(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	_exit(99);
}

static void answer(const char *text, const int *passed, size_t count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * CE_ANSWER_UNSHARED)];
		struct cmsghdr align;
	} control = { .bytes = { 0 } };
	struct iovec part = { .iov_base = (char *)text, .iov_len = strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(&control.align), passed, sizeof(int) * count);
	}
	need(sendmsg(fds[CE_ARG_REPLY], &message, 0) > 0, "sendmsg");
}

static char *contents(int fd)
{
	static char text[1 << 20];
	ssize_t n = pread(fd, text, sizeof text - 1, 0);

	need(n >= 0, "pread");
	for (ssize_t i = 0; i < n; i++)
		if (text[i] == '\0')
			text[i] = ';';
	text[n] = '\0';
	return text;
}

/* ---- report ------------------------------------------------------------------------------------ */

static void report_files(FILE *out)
{
	DIR *dir = opendir("/proc/self/fd");
	int extra = 0;

	need(dir != NULL, "opendir");
	for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
		int number = atoi(entry->d_name), known = number < 3 || number == dirfd(dir);
		for (int i = 0; i < CE_ARG_FDS; i++)
			known = known || number == fds[i];
		extra += !known;
	}
	closedir(dir);
	fprintf(out, "extra_fds=%d\n", extra);
}

static void report_place(FILE *out)
{
	cpu_set_t cores;
	struct rlimit core, files;

	need(sched_getaffinity(0, sizeof cores, &cores) == 0 && getrlimit(RLIMIT_CORE, &core) == 0 &&
		     getrlimit(RLIMIT_NOFILE, &files) == 0,
	     "place");
	fprintf(out, "leads_session=%d\ncores=%d\ncore=%lld\nfiles=%lld\n", getsid(0) == getpid(),
		CPU_COUNT(&cores), (long long)core.rlim_cur, (long long)files.rlim_cur);
}

static void report_signals(FILE *out)
{
	sigset_t mask;
	struct sigaction interrupt, broken_pipe;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigaction(SIGINT, NULL, &interrupt);
	sigaction(SIGPIPE, NULL, &broken_pipe);
	fprintf(out, "blocked=%d\ninterrupt_ignored=%d\npipe_ignored=%d\n",
		sigismember(&mask, SIGTERM), interrupt.sa_handler == SIG_IGN,
		broken_pipe.sa_handler == SIG_IGN);
}

static void report(void)
{
	char *text = NULL, directory[256] = "";
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	mode_t mask = umask(0);

	need(out != NULL && getcwd(directory, sizeof directory) != NULL, "report");
	report_files(out);
	report_place(out);
	report_signals(out);
	fprintf(out, "umask=%03o\ncwd=%s\n", mask, directory);
	fprintf(out, "parent_watched=%d\n",
		(int)syscall(SYS_pidfd_send_signal, fds[CE_ARG_WATCH], 0, NULL, 0));
	for (char **entry = environ; *entry != NULL; entry++)
		fprintf(out, "env:%s\n", *entry);
	fprintf(out, "job:%s\n", contents(fds[CE_ARG_ENVIRONMENT]));
	fclose(out);
	answer(text, NULL, 0);
	free(text);
}

/* ---- ready ------------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	need(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
	close(fd);
}

/* Be a container, as the guard is one: own the namespaces, and end when the plugin closes the life socket. */
static void be_container(int ready)
{
	char map[64], byte;
	unsigned uid = geteuid(), gid = getegid();

	prctl(PR_SET_NAME, "fake-guard");
	need(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, "unshare");
	write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof map, "%u %u 1", uid, uid);
	write_file("/proc/self/uid_map", map);
	snprintf(map, sizeof map, "%u %u 1", gid, gid);
	write_file("/proc/self/gid_map", map);
	close(fds[CE_ARG_REPLY]);
	need(write(ready, "x", 1) == 1, "write");
	close(ready);
	while (recv(fds[CE_ARG_LIFE], &byte, 1, 0) > 0)
		;
	_exit(0);
}

static int open_of(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	need(fd >= 0, path);
	return fd;
}

static void start_container(void)
{
	static const char records[] = "CE_TEST=a=b\nc\0REMOVED\0PATH=/usr/bin:/bin";
	int ready[2];
	char byte;

	need(pipe2(ready, O_CLOEXEC) == 0, "pipe");
	pid_t pid = fork();
	need(pid >= 0, "fork");
	if (pid == 0)
		be_container(ready[1]);
	close(ready[1]);
	/* only the guard must hold this: the end of this process must not be mistaken for the guard's */
	close(fds[CE_ARG_LIFE]);
	need(read(ready[0], &byte, 1) == 1, "the container");
	int environment = memfd_create("records", MFD_CLOEXEC);
	need(environment >= 0 && write(environment, records, sizeof records) > 0, "memfd");
	int passed[] = {
		[CE_ANSWER_USER_NS] = open_of(pid, "ns/user"),
		[CE_ANSWER_MOUNT_NS] = open_of(pid, "ns/mnt"),
		[CE_ANSWER_ENVIRONMENT] = environment,
		[CE_ANSWER_GUARD] = (int)syscall(SYS_pidfd_open, pid, 0),
		[CE_ANSWER_LAUNCHER] = (int)syscall(SYS_pidfd_open, getpid(), 0),
		[CE_ANSWER_ATTENDED] = environment,
	};
	answer("R/usr", passed, CE_ANSWER_UNSHARED);
}

int main(int argc, char **argv)
{
	if (argc != 1 + CE_ARG_COUNT || atoll(argv[1 + CE_ARG_BEGUN]) <= 0)
		return 98;
	for (int i = 0; i < CE_ARG_FDS; i++)
		fds[i] = atoi(argv[1 + i]);
	const char *plan = contents(fds[CE_ARG_PLAN]);
	if (strcmp(plan, "report") == 0)
		report();
	else if (strcmp(plan, "ready") == 0)
		start_container();
	else if (strcmp(plan, "fail") == 0)
		answer("F126\n/etc/edf/x.toml:3: mount source '/nothing': does not exist\nce: hint: make it",
		       NULL, 0);
	else if (strcmp(plan, "hang") == 0) {
		char byte;

		(void)!recv(fds[CE_ARG_LIFE], &byte, 1, 0);
	}
	return strcmp(plan, "fail") == 0 ? 126 : 0;
}
