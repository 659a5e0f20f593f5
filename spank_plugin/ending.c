#define _GNU_SOURCE
#include "ending.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "answer.h"
#include "identity.h"
#include "io.h"
#include "sweep.h"

enum { GUARD_WAIT_MS = 2000, CHILD_WAIT_MS = 5000 };
/* where the child keeps its descriptors; all others of slurmstepd's are closed */
enum { CHILD_GATE = 3, CHILD_REPLY, CHILD_LIFE, CHILD_FIRST_CLOSED };

/* Also ends what a task has left running: its image is no longer served, and it would keep the
 * container's mounts. */
static void end_what_is_left(int reply, const struct ce_moments *moments)
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;

	/* Without an answer the guard learns of the end from the launcher's; nothing to wait on. */
	if (ce_answer_look(reply, &container, &err) < 0) {
		ce_container_close(&container);
		ce_error_clear(&err);
		return;
	}
	if (!ce_wait_readable(container.guard, ce_now_ms() + GUARD_WAIT_MS)) {
		ce_pidfd_kill(container.guard, SIGKILL);
		ce_wait_readable(container.guard, ce_now_ms() + GUARD_WAIT_MS);
	}
	ce_sweep(container.mount_ns);
	ce_moments_write(moments, container.trace);
	ce_container_close(&container);
}

/* Moves the descriptors to places of their own, without one overwriting another. */
static int keep_only(int gate, const struct ce_launcher *launcher)
{
	int high_gate = fcntl(gate, F_DUPFD_CLOEXEC, CHILD_FIRST_CLOSED);
	int high_reply = fcntl(launcher->reply, F_DUPFD_CLOEXEC, CHILD_FIRST_CLOSED);
	int high_life = fcntl(launcher->life, F_DUPFD_CLOEXEC, CHILD_FIRST_CLOSED);

	if (high_gate < 0 || dup2(high_gate, CHILD_GATE) < 0 || high_reply < 0 ||
	    dup2(high_reply, CHILD_REPLY) < 0)
		return -1;
	if (high_life >= 0)
		dup2(high_life, CHILD_LIFE);
	return close_range(high_life >= 0 ? CHILD_FIRST_CLOSED : CHILD_LIFE, ~0U, 0);
}

/* Never returns. */
static void be_child(int gate, const struct ce_launcher *launcher)
{
	char word;

	/* a signal that is for slurmstepd, or that it handles, is none of this process's business */
	ce_default_signals();
	if (keep_only(gate, launcher) < 0 || read(CHILD_GATE, &word, 1) != 1 ||
	    ce_become_user(launcher->uid, launcher->gid, NULL, 0) != NULL)
		_exit(1);
	end_what_is_left(CHILD_REPLY, launcher->moments);
	/* not exit: the handlers are slurmstepd's */
	_exit(0);
}

static void wait_for_child(int child)
{
	siginfo_t end;

	if (!ce_wait_readable(child, ce_now_ms() + CHILD_WAIT_MS)) {
		ce_pidfd_kill(child, SIGKILL);
		ce_wait_readable(child, ce_now_ms() + 1000);
	}
	/* slurmstepd may have been quicker: it waits for any child */
	waitid(P_PIDFD, (id_t)child, &end, WEXITED | WNOHANG);
}

/* The child starts once the word is in the gate; until then it cannot have ended, so that its number
 * is its own when the pidfd is opened. */
static int start_child(const struct ce_launcher *launcher, int *gate)
{
	int ends[2];

	*gate = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0)
		be_child(ends[0], launcher);
	close(ends[0]);
	*gate = ends[1];
	return pid > 0 ? ce_pidfd_open(pid) : -1;
}

void ce_ending_run(const struct ce_launcher *launcher)
{
	CE_AUTO_FD gate = -1;
	CE_AUTO_FD child = start_child(launcher, &gate);

	if (child >= 0 && ce_send(gate, "g", 1, NULL, 0) == 0)
		wait_for_child(child);
}

void ce_ending_run_last(struct ce_launcher *launcher)
{
	CE_AUTO_FD gate = -1;
	CE_AUTO_FD child = start_child(launcher, &gate);

	/* While the child holds them too: whoever closes a socket last closes what is still in its
	 * queue, and what a user has sent there may linger. */
	ce_close_fd(&launcher->reply);
	ce_close_fd(&launcher->life);
	if (child >= 0 && ce_send(gate, "g", 1, NULL, 0) == 0)
		wait_for_child(child);
}
