#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "carry.h"
#include "common/error.h"
#include "common/io.h"
#include "common/protocol.h"
#include "common/say.h"
#include "limits.h"

/* places in struct ce_launcher's `start`, after those of the launcher's descriptors */
enum { KEEP_PROCESS = CE_ARG_FDS, START_COUNT };

static void refuse(int reply, const char *what)
{
	int number = errno;

	ce_answer_not_started(reply, what, strerror(number), ce_start_help(number));
}

static __attribute__((noreturn)) void die(int reply, const char *what)
{
	refuse(reply, what);
	_exit(CE_EXIT_ENGINE);
}

/* Undo the task's binding to its own cores and memory. What serves all tasks of the node may use the whole
 * step's: the kernel keeps it within the step's cpuset. */
static void unbind(void)
{
	cpu_set_t all[8];

	memset(all, 0xff, sizeof all);
	(void)sched_setaffinity(0, sizeof all, all);
	(void)syscall(SYS_set_mempolicy, 0 /* MPOL_DEFAULT */, NULL, 0);
}

/* Start the launcher in a session of its own, away from the task's terminal and process group. */
static pid_t spawn(int reply, const char *program, const char *const argv[], const char *const environment[])
{
	posix_spawnattr_t attributes;
	pid_t pid = -1;

	errno = posix_spawnattr_init(&attributes);
	if (errno == 0)
		errno = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
	if (errno == 0)
		errno = posix_spawn(&pid, program, NULL, &attributes, (char *const *)argv,
				    (char *const *)environment);
	if (errno != 0)
		die(reply, program);
	return pid;
}

/* Take the user's umask, for all that the launcher starts and writes. Where it is not known, that is for the
 * user alone. */
static void take_umask(char **job)
{
	const char *text = ce_variable(job, "SLURM_UMASK");
	char *end = NULL;
	unsigned long mask = text != NULL ? strtoul(text, &end, 8) : 0;

	umask(end != NULL && end != text && *end == '\0' ? (mode_t)mask & 0777 : 077);
}

const char *ce_leave_task(char **job, const int keep[], size_t count)
{
	ce_default_signals();
	ce_ignore_step_signals();
	take_umask(job);
	unbind();
	ce_limits_apply(job);
	if (chdir("/") < 0)
		return "chdir /";
	/* slurmstepd's own descriptors must not reach the process */
	if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return "close_range";
	for (size_t i = 0; i < count; i++) {
		if (fcntl(keep[i], F_SETFD, 0) < 0)
			return "fcntl";
	}
	/* slurmstepd closes a step's output only when no process holds it open any more: even a process
	 * stopped by its user must not hold it. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		return "/dev/null";
	return NULL;
}

/* Set up what the launcher inherits, start it, hand over a pidfd of it, and end. */
static __attribute__((noinline, noreturn)) void start_launcher(const struct ce_config *config, char **job,
							       const int pass[START_COUNT])
{
	char numbers[CE_ARG_FDS][16], begun[32], name[CE_NODE_SIZE + sizeof CE_NODE];
	const char *argv[1 + CE_ARG_COUNT + 1] = { config->node };
	const char *node = ce_variable(job, CE_NODE);
	const char *const environment[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
					    node != NULL ? name : NULL, NULL };

	int reply = pass[CE_ARG_REPLY];
	const char *failed = ce_leave_task(job, pass, CE_ARG_FDS);
	if (failed != NULL)
		die(reply, failed);
	for (int i = 0; i < CE_ARG_FDS; i++) {
		snprintf(numbers[i], sizeof numbers[i], "%d", pass[i]);
		argv[1 + i] = numbers[i];
	}
	snprintf(name, sizeof name, CE_NODE "=%s", node != NULL ? node : "");
	snprintf(begun, sizeof begun, "%lld", (long long)ce_now_ns());
	argv[1 + CE_ARG_BEGUN] = begun;
	/* the pid is the launcher's as long as its parent has not ended */
	int process = ce_pidfd_open(spawn(reply, config->node, argv, environment));
	if (process >= 0)
		(void)ce_send(pass[KEEP_PROCESS], "p", 1, &process, 1);
	_exit(0);
}

/* Start the launcher from a process that ends at once: the task's program must not find a child that it never
 * created. Both processes use the task's memory until they end or execute a program: the task is a copy of
 * slurmstepd, and to copy that twice more takes longer than the launcher itself. */
static void fork_launcher(const struct ce_config *config, char **job, const int pass[START_COUNT])
{
	pid_t pid = vfork();

	if (pid == 0)
		start_launcher(config, job, pass);
	if (pid < 0)
		refuse(pass[CE_ARG_REPLY], "fork");
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void ce_launcher_start(struct ce_launcher *launcher, const struct ce_config *config, char **environment)
{
	if (atomic_exchange(&launcher->shared->started, 1) == 0)
		fork_launcher(config, environment, launcher->start);
	ce_launcher_let_go(launcher);
}

void ce_launcher_let_go(struct ce_launcher *launcher)
{
	for (int i = 0; i < START_COUNT; i++)
		ce_close_fd(&launcher->start[i]);
}

int ce_launcher_process(const struct ce_launcher *launcher)
{
	int fds[CE_MAX_FDS];
	char byte;

	if (ce_receive(launcher->process, MSG_PEEK | MSG_DONTWAIT, &byte, 1, fds) <= 0)
		return -1;
	return fds[0];
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

	/* facts last: of two entries with the same name, the launcher uses the later one */
	if (fd < 0 || write_entries(fd, environment) < 0 || write_entries(fd, facts) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	return ce_release_fd(&fd);
}

static int make_socket(int *ours, int *theirs, struct ce_error *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return ce_fail(err, "cannot make a socket: %s", strerror(errno));
	*ours = ends[0];
	*theirs = ends[1];
	return 0;
}

int ce_launcher_prepare(struct ce_launcher *launcher, const char *plan, char **environment,
			char *const *facts, uid_t uid, gid_t gid, struct ce_error *err)
{
	int *start = launcher->start;

	launcher->uid = uid;
	launcher->gid = gid;
	launcher->shared = ce_shared_make();
	if (launcher->shared == NULL)
		return ce_fail(err, "cannot get memory for the step: %s", strerror(errno));
	if (make_socket(&launcher->reply, &start[CE_ARG_REPLY], err) < 0 ||
	    make_socket(&launcher->life, &start[CE_ARG_LIFE], err) < 0 ||
	    make_socket(&launcher->process, &start[KEEP_PROCESS], err) < 0)
		return -1;
	start[CE_ARG_PLAN] = ce_memory_file("ce-plan", plan, strlen(plan));
	start[CE_ARG_ENVIRONMENT] = environment_file(environment, facts);
	/* slurmstepd, which the session must not outlive */
	start[CE_ARG_WATCH] = ce_pidfd_open(getpid());
	if (start[CE_ARG_PLAN] < 0 || start[CE_ARG_ENVIRONMENT] < 0 || start[CE_ARG_WATCH] < 0)
		return ce_fail(err, "cannot hand over the plan: %s", strerror(errno));
	return 0;
}
