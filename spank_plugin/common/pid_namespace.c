#define _GNU_SOURCE
#include "pid_namespace.h"

#include <errno.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io.h"

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

static void await(pid_t child)
{
	int status;

	/* there is no other child whose SIGCHLD this could be */
	while (waitpid(child, &status, WNOHANG | WUNTRACED) == child) {
		if (!WIFSTOPPED(status))
			end_as(status);
		/* stop, too, as a shell's foreground job does; the SIGCONT that ends this stays pending, and
		 * is passed on */
		raise(SIGSTOP);
	}
}

/* Relay signals to the child, and end as it does. All signals are blocked, and taken one by one. */
__attribute__((noreturn)) static void relay_until_end(pid_t child)
{
	sigset_t all;

	sigfillset(&all);
	for (;;) {
		int signal_number = sigwaitinfo(&all, NULL);

		if (signal_number == SIGCHLD)
			await(child);
		else if (signal_number > 0)
			kill(child, signal_number);
	}
}

/* Give the child a process group of its own, so that the terminal's signals reach it only once, and the
 * terminal, if this process has it. */
static void hand_over_terminal(pid_t child)
{
	int has_it = tcgetpgrp(STDIN_FILENO) == getpgrp();

	if (setpgid(child, child) == 0 && has_it)
		(void)tcsetpgrp(STDIN_FILENO, child);
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

int ce_enter_pids(struct ce_error *err)
{
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
		return 0;
	}
	if (child < 0) {
		int reason = errno;

		close(ends[0]);
		close(ends[1]);
		sigprocmask(SIG_SETMASK, &before, NULL);
		return ce_fail(err, "cannot start a process in the container's PID namespace: %s",
			       strerror(reason));
	}
	hand_over_terminal(child);
	(void)ce_write_all(ends[1], "", 1);
	(void)close_range(0, ~0U, 0);
	relay_until_end(child);
}
