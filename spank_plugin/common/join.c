#define _GNU_SOURCE
#include "join.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generated/help.h"
#include "io.h"
#include "look_up.h"
#include "outcome.h"
#include "seccomp.h"

/* ---- its PID namespace ------------------------------------------------------------------------- */

int ce_is_pid_namespace(int fd)
{
	return ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWPID;
}

/* End as the child did, without a second core file beside the child's. */
static void end_as(int status)
{
	const struct rlimit none = { 0, 0 };
	sigset_t all;

	if (!WIFSIGNALED(status))
		_exit(WEXITSTATUS(status));
	(void)setrlimit(RLIMIT_CORE, &none);
	signal(WTERMSIG(status), SIG_DFL);
	sigfillset(&all);
	sigprocmask(SIG_UNBLOCK, &all, NULL);
	raise(WTERMSIG(status));
	_exit(128 + WTERMSIG(status));
}

/* The process beside a command: its child, where the outcome is reported, the guard, and the terminal, in
 * descriptors, or -1. The child has a process group of its own, so that the terminal's signals reach it only
 * once. */
struct beside {
	pid_t child;
	int outcome, json, guard, terminal;
	struct ce_whose whose;
	int has_lent; /* whether the child's group has the terminal, and gives it back in the end */
	int64_t begun_ms;
};

/* Give the terminal to the child's group if this one has it. Return whether the child's has it now. */
static int lend_terminal(struct beside *beside)
{
	if (beside->terminal < 0 || tcgetpgrp(beside->terminal) != getpgrp() ||
	    tcsetpgrp(beside->terminal, beside->child) < 0)
		return 0;
	return beside->has_lent = 1;
}

static int wants_terminal(int status)
{
	return WSTOPSIG(status) == SIGTTIN || WSTOPSIG(status) == SIGTTOU;
}

/* Stay, in a step, for a command that has ended with its PID namespace: by tasks that go on, the plugin
 * tells the death of a container from Slurm's SIGKILL for all of the step (session.c). It kills this process
 * once it has reported the cause. */
static void stay_for_plugin(const struct beside *beside, int status)
{
	enum { DEATH_MS = 300 };

	if (beside->whose.node != NULL && beside->guard >= 0 && WIFSIGNALED(status) &&
	    WTERMSIG(status) == SIGKILL && ce_wait_readable(beside->guard, ce_now_ms() + DEATH_MS))
		poll(NULL, 0, CE_REPORT_MS);
}

static void await(struct beside *beside)
{
	struct ce_ending ending;
	struct rusage used;
	int status;

	/* there is no other child whose SIGCHLD this could be */
	while (wait4(beside->child, &status, WNOHANG | WUNTRACED, &used) == beside->child) {
		if (!WIFSTOPPED(status)) {
			ending = (struct ce_ending){ status, ce_now_ms() - beside->begun_ms,
						     (uint64_t)used.ru_maxrss * 1024 };
			if (beside->has_lent)
				(void)tcsetpgrp(beside->terminal, getpgrp());
			if (beside->outcome >= 0)
				/* of a step, the plugin reports the guard's end */
				ce_outcome_report(beside->outcome, beside->json,
						  beside->whose.node != NULL ? -1 : beside->guard,
						  &beside->whose, &ending);
			stay_for_plugin(beside, status);
			end_as(status);
		}
		if (wants_terminal(status) && lend_terminal(beside)) {
			kill(-beside->child, SIGCONT);
			continue;
		}
		/* Stop, too, as a shell's foreground job does, and with it what Ctrl-Z would have stopped;
		 * the SIGCONT that ends this stays pending, and is passed on. But without a terminal, no
		 * command puts off its outcome in this way. */
		if (beside->has_lent && WSTOPSIG(status) == SIGTSTP)
			kill(0, SIGTSTP);
		beside->has_lent = 0;
		if (beside->outcome < 0 || beside->terminal >= 0)
			raise(SIGSTOP);
	}
}

/* Relay signals to the child, and end as it does. All signals are blocked, and taken one by one. */
__attribute__((noreturn)) static void relay_until_end(struct beside *beside)
{
	siginfo_t info = { .si_code = 0 };
	sigset_t all;

	sigfillset(&all);
	for (;;) {
		int signal_number = sigwaitinfo(&all, &info);

		if (signal_number == SIGCHLD)
			await(beside);
		/* the terminal's signals, from the kernel, are for all of a foreground job */
		else if (signal_number > 0 &&
			 (info.si_code != SI_KERNEL || kill(-beside->child, signal_number) < 0))
			kill(beside->child, signal_number);
	}
}

/* Wait in the child for the byte by which its parent says that all is arranged. If none arrives, the parent
 * has died, and nobody would end the child. */
static void await_word(int from_parent)
{
	char word;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(from_parent, &word, 1) != 1)
		_exit(1);
	close(from_parent);
}

/* Take the limit of processes of the container's first process, which is the container's. */
static int take_limit(struct ce_error *err)
{
	struct rlimit own, first;

	if (prlimit(1, RLIMIT_NPROC, NULL, &first) < 0 || getrlimit(RLIMIT_NPROC, &own) < 0 ||
	    (first.rlim_max < own.rlim_max && setrlimit(RLIMIT_NPROC, &first) < 0))
		return ce_fail(err, "cannot take the container's limit of processes: %s", strerror(errno));
	return 0;
}

/* Close all descriptors but those of the terminal and for the report, which get the numbers from 3; standard
 * error stays for it, too. Without anything to report, nobody must wait for this process to close them. */
static void keep_for_report(const struct ce_container *container, struct beside *beside)
{
	enum { FIRST = 3, COUNT = 5 };
	int kept[COUNT] = { -1, -1, container->guard, beside->terminal, -1 };
	struct ce_outcome found;

	ce_outcome_read(container->outcome, &found);
	int is_silent = container->json < 0 && !found.is_watched;
	if (!is_silent) {
		kept[0] = container->outcome;
		kept[1] = container->json;
		kept[4] = container->marks;
	}
	for (int i = 0; i < COUNT; i++)
		kept[i] = kept[i] >= 0 ? fcntl(kept[i], F_DUPFD, FIRST + COUNT) : -1;
	(void)close_range(0, is_silent ? 2 : 1, 0);
	for (int i = 0; i < COUNT; i++)
		kept[i] = kept[i] >= 0 ? dup2(kept[i], FIRST + i) : (close(FIRST + i), -1);
	(void)close_range(FIRST + COUNT, ~0U, 0);
	beside->outcome = kept[0];
	beside->json = kept[1];
	beside->guard = kept[2];
	beside->terminal = kept[3];
	beside->whose = (struct ce_whose){ container->node, container->task, container->planned, kept[4] };
}

int ce_enter_pids(const struct ce_container *container, int has_pids, struct ce_error *err)
{
	struct beside beside = { .begun_ms = ce_now_ms() };
	sigset_t all, before;
	int ends[2];

	if (pipe(ends) < 0)
		return ce_fail(err, "cannot make a pipe: %s", strerror(errno));
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid_t child = fork();
	if (child == 0) {
		close(ends[1]);
		await_word(ends[0]);
		sigprocmask(SIG_SETMASK, &before, NULL);
		return has_pids ? take_limit(err) : 0;
	}
	if (child < 0) {
		int reason = errno;

		close(ends[0]);
		close(ends[1]);
		sigprocmask(SIG_SETMASK, &before, NULL);
		return ce_fail(err, "cannot start a process in the container's PID namespace: %s",
			       strerror(reason));
	}
	beside.child = child;
	/* in a pipeline, it may be a pager that reads the terminal: the child gets it once it wants to */
	beside.terminal = tcgetpgrp(STDIN_FILENO) == getpgrp() ? STDIN_FILENO : -1;
	if (setpgid(child, child) == 0 && isatty(STDOUT_FILENO))
		(void)lend_terminal(&beside);
	(void)ce_write_all(ends[1], "", 1);
	keep_for_report(container, &beside);
	relay_until_end(&beside);
}

/* ---- the container ----------------------------------------------------------------------------- */

/* A larger environment cannot be given to execve on any Linux (a quarter of the stack limit, at most 6 MiB),
 * so a larger record file is a bug of ours or comes from a broken peer. */
enum { MAX_RECORDS = 16 * 1024 * 1024 };

void ce_container_close(struct ce_container *container)
{
	ce_close_fd(&container->user_ns);
	for (size_t i = 0; i < CE_MAX_UNSHARED; i++)
		ce_close_fd(&container->unshared[i]);
	ce_close_fd(&container->mount_ns);
	ce_close_fd(&container->environment);
	ce_close_fd(&container->guard);
	ce_close_fd(&container->launcher);
	ce_close_fd(&container->attended);
	ce_close_fd(&container->trace);
	ce_close_fd(&container->marks);
	ce_close_fd(&container->tasks);
	ce_close_fd(&container->profile);
	ce_close_fd(&container->outcome);
	free(container->workdir);
	container->workdir = NULL;
	free(container->notices);
	container->notices = NULL;
	free(container->entrypoint_output);
	container->entrypoint_output = NULL;
}

int ce_join(const struct ce_container *container, struct ce_error *err)
{
	int has_pids = 0;

	/* The user namespace comes first: it gives the capabilities over itself that joining the other
	 * namespaces, which it owns, requires. execve removes them again, because the user is not root in
	 * it. */
	if (setns(container->user_ns, CLONE_NEWUSER) < 0)
		return ce_fail(err, "cannot enter the container's user namespace: %s",
			       strerror(errno));
	for (size_t i = 0; i < CE_MAX_UNSHARED; i++) {
		if (container->unshared[i] >= 0 && setns(container->unshared[i], 0) < 0)
			return ce_fail(err, "cannot enter a namespace of the container's own: %s",
				       strerror(errno));
		has_pids |= container->unshared[i] >= 0 && ce_is_pid_namespace(container->unshared[i]);
	}
	if (setns(container->mount_ns, CLONE_NEWNS) < 0)
		return ce_fail(err, "cannot enter the container's mount namespace: %s",
			       strerror(errno));
	if (chdir(container->workdir) < 0)
		return ce_fail_below(err, CE_HELP_WORKDIR_MISSING,
				     "workdir '%s': cannot change to it in the container: %s",
				     container->workdir, strerror(errno));
	if (!container->may_gain && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return ce_fail(err, "cannot set no_new_privs: %s", strerror(errno));
	/* root in the container is still the user, who cannot change owners or become another user */
	if (geteuid() == 0 && ce_fakeroot() < 0)
		return ce_fail(err, "cannot install the filter for root in the container: %s",
			       strerror(errno));
	return has_pids || container->json >= 0 ? ce_enter_pids(container, has_pids, err) : 0;
}

static int apply_record(char *record, const struct ce_variables *variables, struct ce_error *err)
{
	int is_copy = record[0] == '=';
	char *name = record + is_copy;
	char *equals = strchr(name, '=');
	const char *value = equals != NULL ? equals + 1 : NULL;

	if (equals != NULL)
		*equals = '\0';
	if (is_copy) {
		value = value != NULL ? variables->get(variables->context, value) : NULL;
		if (value == NULL)
			return 0;
	}
	if (variables->set(variables->context, name, value) < 0)
		return ce_fail(err, "cannot set the environment variable '%s'", name);
	return 0;
}

/* Give the task the usual PATH if it has none: without it Slurm takes a command's name for a path, and shells
 * each search places of their own. */
static int keep_path(const struct ce_variables *variables, struct ce_error *err)
{
	if (variables->get(variables->context, "PATH") != NULL ||
	    variables->set(variables->context, "PATH", ce_usual_path) == 0)
		return 0;
	return ce_fail(err, "cannot set the environment variable 'PATH'");
}

int ce_apply_environment(int records_fd, const struct ce_variables *variables, struct ce_error *err)
{
	size_t size = 0;
	CE_AUTO_FREE char *records = ce_read_file_at(records_fd, MAX_RECORDS, &size);

	if (records == NULL)
		return ce_fail(err, "cannot read the container's environment: %s", strerror(errno));
	for (char *next = records; next < records + size;) {
		size_t length = strlen(next);
		if (apply_record(next, variables, err) < 0)
			return -1;
		next += length + 1;
	}
	return keep_path(variables, err);
}
