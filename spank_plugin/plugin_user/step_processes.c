#define _GNU_SOURCE
#include "step_processes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"
#include "common/io.h"
#include "common/protocol.h"
#include "common/say.h"
#include "plugin/carry.h"
#include "plugin/session_end.h"

/* ---- leaving the task -------------------------------------------------------------------------- */

/* Undo the task's binding to its own cores and memory. What serves all tasks of the node may use the whole
 * step's: the kernel keeps it within the step's cpuset. */
static void unbind(void)
{
	cpu_set_t all[8];

	memset(all, 0xff, sizeof all);
	(void)sched_setaffinity(0, sizeof all, all);
	(void)syscall(SYS_set_mempolicy, 0 /* MPOL_DEFAULT */, NULL, 0);
}

static const struct limit {
	const char *name;
	__rlimit_resource_t resource;
} limits[] = {
	{ "SLURM_RLIMIT_CPU=", RLIMIT_CPU },	     { "SLURM_RLIMIT_FSIZE=", RLIMIT_FSIZE },
	{ "SLURM_RLIMIT_DATA=", RLIMIT_DATA },	     { "SLURM_RLIMIT_STACK=", RLIMIT_STACK },
	{ "SLURM_RLIMIT_CORE=", RLIMIT_CORE },	     { "SLURM_RLIMIT_RSS=", RLIMIT_RSS },
	{ "SLURM_RLIMIT_NPROC=", RLIMIT_NPROC },     { "SLURM_RLIMIT_NOFILE=", RLIMIT_NOFILE },
	{ "SLURM_RLIMIT_MEMLOCK=", RLIMIT_MEMLOCK }, { "SLURM_RLIMIT_AS=", RLIMIT_AS },
};
enum { LIMIT_COUNT = sizeof limits / sizeof limits[0] };

static void set_limit(__rlimit_resource_t resource, const char *value)
{
	struct rlimit limit;
	char *end;

	/* U means that the user, not the site, has asked for the limit to be passed on */
	if (*value == 'U')
		value++;
	errno = 0;
	unsigned long number = strtoul(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0' || getrlimit(resource, &limit) < 0)
		return;
	limit.rlim_cur = number < limit.rlim_max ? number : limit.rlim_max;
	(void)setrlimit(resource, &limit);
}

void ce_limits_apply(char **environment)
{
	for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
		for (int i = 0; i < LIMIT_COUNT; i++) {
			size_t length = strlen(limits[i].name);
			if (strncmp(*entry, limits[i].name, length) == 0)
				set_limit(limits[i].resource, *entry + length);
		}
	}
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

/* Make this process, which a task has forked, one that serves the whole step: its signals, limits and
 * processors become the step's, its output goes nowhere, and a program that it executes gets the descriptors
 * `keep` alone. Return NULL, or what has failed. */
static const char *leave_task(char **job, const int keep[], size_t count)
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

/* ---- the launcher ------------------------------------------------------------------------------ */

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

/* Set up what the launcher inherits, start it, hand over a pidfd of it, and end. */
static __attribute__((noinline, noreturn)) void start_launcher(const struct ce_config *config, char **job,
							       const int pass[CE_START_COUNT])
{
	char numbers[CE_ARG_FDS][16], begun[32], name[CE_NODE_SIZE + sizeof CE_NODE];
	const char *argv[1 + CE_ARG_COUNT + 1] = { config->guard };
	const char *node = ce_variable(job, CE_NODE);
	const char *const environment[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
					    node != NULL ? name : NULL, NULL };

	int reply = pass[CE_ARG_REPLY];
	const char *failed = leave_task(job, pass, CE_ARG_FDS);
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
	int process = ce_pidfd_open(spawn(reply, config->guard, argv, environment));
	if (process >= 0)
		(void)ce_send(pass[CE_START_PROCESS], "p", 1, &process, 1);
	_exit(0);
}

/* Start the launcher from a process that ends at once: the task's program must not find a child that it never
 * created. Both processes use the task's memory until they end or execute a program: the task is a copy of
 * slurmstepd, and to copy that twice more takes longer than the launcher itself. */
static void fork_launcher(const struct ce_config *config, char **job, const int pass[CE_START_COUNT])
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

/* ---- the holder of the images of a job --------------------------------------------------------- */

/* Return a memory file with what the holder does, in the format of guard/guard_ops.h; -1 on failure. */
static int holder_specification(const char *prefix, const char *name)
{
	char text[3 * PATH_MAX];
	int length = snprintf(text, sizeof text,
			      "session%c2%c1m%c%s/libexec/container-engine/session%c"
			      "hold%c2%c%s%c%s/libexec/container-engine/ce-image%c",
			      0, 0, 0, prefix, 0, 0, 0, name, 0, prefix, 0);

	return (size_t)length < sizeof text ? ce_memory_file("ce-specification", text, (size_t)length) : -1;
}

/* Execute the guard as the holder; return only if that fails. */
static void become_holder(const struct ce_config *config, char **job, const int args[CE_GUARD_LEAST])
{
	char numbers[CE_GUARD_LEAST][16];
	char *argv[1 + CE_GUARD_LEAST + 1] = { config->guard }, *none[] = { NULL };

	for (int i = 0; i < CE_GUARD_LEAST; i++) {
		snprintf(numbers[i], sizeof numbers[i], "%d", args[i]);
		argv[1 + i] = numbers[i];
	}
	if (leave_task(job, args, CE_GUARD_LEAST) == NULL)
		execve(config->guard, argv, none);
}

void ce_holder_start(const struct ce_config *config, char **environment)
{
	char name[CE_HOLDER_SIZE];
	const char *job = ce_variable(environment, "SLURM_JOB_ID"), *node = ce_variable(environment, CE_NODE);
	int ends[2], life = ce_holder_life();

	if (life < 0 || job == NULL || node == NULL || config->prefix == NULL ||
	    snprintf(name, sizeof name, CE_HOLDER_NAME, (unsigned)geteuid(), job, node) >= (int)sizeof name ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	CE_AUTO_FD ours = ends[0], theirs = ends[1];
	/* not the script: its own container, if it runs in one, ends before the holder does */
	CE_AUTO_FD slurmstepd = ce_pidfd_open(getppid());
	CE_AUTO_FD todo = holder_specification(config->prefix, name);
	const int args[] = {
		[CE_GUARD_CONTROL] = theirs,
		[CE_GUARD_WATCH] = slurmstepd,
		[CE_GUARD_LIFE] = life,
		[CE_GUARD_SPECIFICATION] = todo,
	};
	/* the child executes at once, and its program forks and ends: the script finds no child */
	pid_t pid = slurmstepd >= 0 && todo >= 0 ? vfork() : -1;
	if (pid == 0) {
		become_holder(config, environment, args);
		_exit(1);
	}
	if (pid > 0)
		(void)ce_await_child(pid);
}
