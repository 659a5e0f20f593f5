#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "help.h"
#include "identity.h"
#include "io.h"

/* The descriptors that the launcher gets, in the order of its arguments. */
enum { PASS_REPLY, PASS_PLAN, PASS_ENVIRONMENT, PASS_WATCH, PASS_LIFE, PASS_COUNT };

/* Answers in place of the launcher, as it would (answer.c). */
static void die(int reply, const char *what)
{
	char answer[PATH_MAX + 512];

	int length = snprintf(answer, sizeof answer, "F%d\ncannot start the launcher: %s: %s\n%s",
			      CE_EXIT_ENGINE, what, strerror(errno), CE_HELP_PLUGIN);
	if (length > 0 && (size_t)length < sizeof answer)
		(void)ce_send(reply, answer, (size_t)length, NULL, 0);
	_exit(CE_EXIT_ENGINE);
}

/* slurmstepd has set the supplementary groups already (initgroups): they are taken as they are, so that
 * this needs no look-up of names. */
static void become_user(int reply, uid_t uid, gid_t gid)
{
	gid_t groups[NGROUPS_MAX > 65536 ? 65536 : NGROUPS_MAX];

	int count = getgroups(sizeof groups / sizeof groups[0], groups);
	if (count < 0)
		die(reply, "getgroups");
	const char *failure = ce_become_user(uid, gid, groups, (size_t)count);
	if (failure != NULL)
		die(reply, failure);
}

/* Never returns. Between fork and execve in a process with threads only async-signal-safe calls are
 * sound; snprintf of numbers and the calls below are so in glibc, and nothing here allocates. */
static void become_launcher(const struct ce_config *config, uid_t uid, gid_t gid,
			    const int pass[PASS_COUNT])
{
	char numbers[PASS_COUNT][16], begun[32];
	const char *argv[PASS_COUNT + 3] = { config->node };
	const char *const environment[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
					    NULL };

	int reply = pass[PASS_REPLY];
	become_user(reply, uid, gid);
	ce_default_signals();
	ce_ignore_step_signals();
	umask(022);
	if (chdir("/") < 0)
		die(reply, "chdir /");
	/* slurmstepd's own descriptors are none of the launcher's business */
	if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		die(reply, "close_range");
	for (int i = 0; i < PASS_COUNT; i++) {
		if (fcntl(pass[i], F_SETFD, 0) < 0)
			die(reply, "fcntl");
		snprintf(numbers[i], sizeof numbers[i], "%d", pass[i]);
		argv[i + 1] = numbers[i];
	}
	snprintf(begun, sizeof begun, "%lld", (long long)ce_moments_now());
	argv[PASS_COUNT + 1] = begun;
	argv[PASS_COUNT + 2] = NULL;
	/* slurmstepd ends a step's output when nobody holds its end any more: not even a launcher that its
	 * user has stopped may. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		die(reply, "/dev/null");
	execve(config->node, (char *const *)argv, (char *const *)environment);
	die(reply, config->node);
}

static int write_entries(int fd, char *const *entry)
{
	for (; entry != NULL && *entry != NULL; entry++) {
		if (ce_write_all(fd, *entry, strlen(*entry) + 1) < 0)
			return -1;
	}
	return 0;
}

static int environment_file(char **environment, char *const *facts)
{
	CE_AUTO_FD fd = ce_memory_file("ce-job-environment", "", 0);

	/* facts last: of two entries with one name the launcher believes the later one */
	if (fd < 0 || write_entries(fd, environment) < 0 || write_entries(fd, facts) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	int result = fd;
	fd = -1;
	return result;
}

/* The process that slurmstepd forks: it forks the launcher and sends a pidfd of it. Never returns. */
static void become_middle(const struct ce_config *config, uid_t uid, gid_t gid,
			  const int pass[PASS_COUNT], int answer)
{
	pid_t pid = _Fork();

	if (pid == 0)
		become_launcher(config, uid, gid, pass);
	if (pid < 0)
		die(pass[PASS_REPLY], "fork");
	/* the launcher cannot have been waited for yet, so the number still is its own */
	int process = ce_pidfd_open(pid);
	if (process < 0 || ce_send(answer, "P", 1, &process, 1) < 0)
		die(pass[PASS_REPLY], "pidfd");
	_exit(0);
}

/* The launcher is no child of slurmstepd: Slurm waits for any child there, and after the end of one
 * that leaves tasks running it sleeps 100 ms before it looks again. The end of a short task would be
 * noticed that much later. */
static int fork_launcher(struct ce_launcher *launcher, const struct ce_config *config, uid_t uid,
			 gid_t gid, const int pass[PASS_COUNT], struct ce_error *err)
{
	int ends[2], fds[CE_MAX_FDS];
	char byte;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return ce_fail(err, "cannot make a socket: %s", strerror(errno));
	CE_AUTO_FD ours = ends[0];
	CE_AUTO_FD theirs = ends[1];
	pid_t pid = fork();
	if (pid < 0)
		return ce_fail(err, "cannot start the launcher: %s", strerror(errno));
	if (pid == 0)
		become_middle(config, uid, gid, pass, theirs);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (ce_receive(ours, MSG_DONTWAIT, &byte, 1, fds) != 1 || fds[0] < 0)
		return ce_fail(err, "cannot start the launcher");
	launcher->process = fds[0];
	return 0;
}

int ce_launcher_start(struct ce_launcher *launcher, const struct ce_config *config,
		      const char *plan, char **environment, char *const *facts, uid_t uid,
		      gid_t gid, struct ce_error *err)
{
	int reply[2] = { -1, -1 }, life[2] = { -1, -1 };

	launcher->uid = uid;
	launcher->gid = gid;
	launcher->moments = ce_moments_make();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, reply) < 0)
		return ce_fail(err, "cannot make a socket: %s", strerror(errno));
	launcher->reply = reply[0];
	CE_AUTO_FD their_reply = reply[1];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, life) < 0)
		return ce_fail(err, "cannot make a socket: %s", strerror(errno));
	launcher->life = life[0];
	CE_AUTO_FD their_life = life[1];
	CE_AUTO_FD plan_fd = ce_memory_file("ce-plan", plan, strlen(plan));
	CE_AUTO_FD environment_fd = environment_file(environment, facts);
	CE_AUTO_FD watch = ce_pidfd_open(getpid());
	if (plan_fd < 0 || environment_fd < 0 || watch < 0)
		return ce_fail(err, "cannot hand over the plan: %s", strerror(errno));
	const int pass[PASS_COUNT] = { their_reply, plan_fd, environment_fd, watch, their_life };
	return fork_launcher(launcher, config, uid, gid, pass, err);
}
