#define _GNU_SOURCE
#include "session_end.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/become_user.h"
#include "common/io.h"
#include "common/kill_container.h"
#include "common/outcome.h"
#include "common/say.h"
#include "generated/help.h"
#include "image_figures.h"
#include "launcher.h"
#include "launcher_reply.h"

/* the child's waits, one after the other */
enum { LAUNCHER_WAIT_MS = 2000, GUARD_WAIT_MS = 2000, ATTENDED_WAIT_MS = 2000 };
enum { CHILD_WAIT_MS = 9000, FINISH_WAIT_MS = 1000, CLAIM_WAIT_MS = 400, ARRIVAL_MS = 100 };
/* Saving a container may take as long as the site lets an image be packed (import_timeout_s). The processes
 * that do it belong to the step, which ends them with its time limit or scancel: a save is waited for as long
 * as they live. */
enum { SAVE_WAIT_MS = 24 * 3600 * 1000 };
/* what the child sends to its parent: it is done; it will take longer */
#define DONE_WORD "d"
#define SAVING_WORD "s"
enum { SAVE_TEXT_SIZE = 8 * 1024 + 1 };
/* the numbers of the descriptors that the child keeps; all others from slurmstepd are closed */
enum { CHILD_GATE = 3, CHILD_REPLY, CHILD_LIFE, CHILD_PROCESS, CHILD_FIRST_CLOSED };

/* Work for a child that becomes the user, whose end closes and frees all that it takes. */
struct errand {
	uid_t uid;
	gid_t gid;
	const struct ce_launcher *launcher; /* NULL: it needs nothing of the session */
	void (*work)(const void *context);
	const void *context;
};

/* Text to print once per step. */
struct message {
	const struct ce_launcher *launcher;
	const char *text;
};

/* Return whether this node is to print the message. The directory of the marks may be on the file server that
 * has caused a death, and not answer: then another node may print the message, too, which is better than
 * nothing. */
static int claim_soon(int marks, const struct message *message)
{
	siginfo_t end = { .si_status = 0 };
	pid_t pid = fork();

	if (pid == 0)
		_exit(ce_claim_message(marks, message->launcher->planned, message->text) ? 0 : 1);
	CE_AUTO_FD child = pid > 0 ? ce_pidfd_open(pid) : -1;
	if (child < 0)
		return 1;
	if (!ce_wait_readable(child, ce_now_ms() + CLAIM_WAIT_MS)) {
		ce_pidfd_kill(child, SIGKILL);
		return 1;
	}
	return waitid(P_PIDFD, (id_t)child, &end, WEXITED) < 0 || end.si_status != 1;
}

/* Give a line time to reach srun: of a step whose task was ended by a signal, Slurm drops what is printed in
 * the last milliseconds. */
static void let_arrive(void)
{
	ce_wait_readable(-1, ce_now_ms() + ARRIVAL_MS);
}

static void tell(const void *context)
{
	const struct message *death = context;
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;

	(void)ce_reply_look(CHILD_REPLY, &container, &err);
	if (!claim_soon(container.marks, death))
		return;
	ce_say_error(death->launcher->shared->node, death->text, ce_end_help(death->text));
	let_arrive();
}

/* Let the launcher save the container, unless its step is being ended, and print what became of it. */
static void save(const char *node, int is_terminated)
{
	char text[SAVE_TEXT_SIZE];

	(void)ce_send(CHILD_GATE, SAVING_WORD, 1, NULL, 0);
	if (is_terminated)
		(void)ce_send(CHILD_REPLY, DONE_WORD, 1, NULL, 0);
	int is_saved = ce_reply_await_save(CHILD_REPLY, CHILD_PROCESS, ce_now_ms() + SAVE_WAIT_MS, text,
					   sizeof text);
	ce_say(node, is_saved ? "saved" : "error", text + 1);
	let_arrive();
}

/* Return the process ID of the guard, 0 if there is none. `guard` is a pidfd, or whatever the user's launcher
 * has sent in its place. */
static long process_of(int guard)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", guard);
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, path, 0, 4096, NULL);
	const char *pid = text != NULL ? strstr(text, "\nPid:") : NULL;
	return pid != NULL ? strtol(pid + strlen("\nPid:"), NULL, 10) : 0;
}

/* Return the bytes of the container's space in memory if it is full, else 0: of the tmpfs in which the guard
 * works. */
static uint64_t full_space(long guard)
{
	char path[64];
	struct statfs space;

	snprintf(path, sizeof path, "/proc/%ld/cwd", guard);
	int is_full = statfs(path, &space) == 0 && space.f_type == TMPFS_MAGIC && space.f_bavail == 0;
	return is_full ? (uint64_t)space.f_blocks * (uint64_t)space.f_bsize : 0;
}

static void warn_if_full(const struct ce_launcher *launcher, const struct ce_container *container,
			 long guard)
{
	char text[512];
	uint64_t bytes = full_space(guard);

	snprintf(text, sizeof text,
		 "the container's space in memory (%" PRIu64 " MiB) is full: files outside of mounts "
		 "are kept there\n" CE_HELP_CONTAINER_SPACE,
		 bytes >> 20);
	if (bytes == 0 || !claim_soon(container->marks, &(struct message){ launcher, text }))
		return;
	ce_say(launcher->shared->node, "warning", text);
	let_arrive();
}

/* Kill what a task has left running. In a container of a job, Slurm kills what belongs to this step. */
static void kill_left(const struct ce_container *container, int spares)
{
	if (!container->is_of_job)
		(void)ce_kill_container(container->tasks >= 0 ? container->user_ns : container->mount_ns,
					spares);
}

/* End the session, and what a task has left running: first, since without its image a script's commands fail,
 * and it would go on with the next; and last, as it would keep mounts. Services are stopped by ce-reaper. */
static void end_session(const void *context)
{
	const struct ce_launcher *launcher = context;
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;

	/* Without an answer there is no session to end cleanly. */
	if (ce_reply_look(CHILD_REPLY, &container, &err) < 0)
		return;
	if (container.is_saved)
		save(launcher->shared->node, launcher->is_terminated);
	/* After its answer the launcher hands the end of hooks to the guard and writes the trace; on a busy
	 * machine the tasks may end before it has done so. */
	if (!ce_wait_readable(container.launcher, ce_now_ms() + LAUNCHER_WAIT_MS))
		ce_pidfd_kill(container.launcher, SIGKILL);
	long guard = process_of(container.guard);
	warn_if_full(launcher, &container, guard);
	/* from the guard, before it ends: one that was killed has none */
	CE_AUTO_FREE char *reads = ce_figures_text(guard);
	if (ce_wait_readable(container.attended, 0))
		kill_left(&container, 1);
	shutdown(CHILD_LIFE, SHUT_RDWR);
	if (!ce_wait_readable(container.guard, ce_now_ms() + GUARD_WAIT_MS)) {
		ce_pidfd_kill(container.guard, SIGKILL);
		ce_wait_readable(container.guard, ce_now_ms() + GUARD_WAIT_MS);
	}
	kill_left(&container, 0);
	ce_shared_write(launcher->shared, container.trace, reads);
	ce_wait_readable(container.attended, ce_now_ms() + ATTENDED_WAIT_MS);
}

/* Let the job's holder of images end, whose pidfd it has sent. */
static void end_holder(const void *context)
{
	int fds[CE_MAX_FDS];
	char word;

	(void)context;
	if (!ce_wait_readable(CHILD_REPLY, ce_now_ms() + LAUNCHER_WAIT_MS) ||
	    ce_receive(CHILD_REPLY, 0, &word, 1, fds) != 1)
		return;
	shutdown(CHILD_LIFE, SHUT_RDWR);
	ce_wait_readable(fds[0], ce_now_ms() + GUARD_WAIT_MS);
}

/* Move the gate and the session's descriptors to their fixed numbers, without one overwriting another, and
 * close all others. */
static int keep_only(int gate, const struct ce_launcher *launcher)
{
	int kept[] = { gate, -1, -1, -1 };
	enum { KEPT = sizeof kept / sizeof kept[0] };

	if (launcher != NULL) {
		kept[1] = launcher->reply;
		kept[2] = launcher->life;
		kept[3] = ce_launcher_process(launcher);
	}
	for (int i = 0; i < KEPT; i++)
		kept[i] = fcntl(kept[i], F_DUPFD_CLOEXEC, CHILD_FIRST_CLOSED);
	if (kept[0] < 0 || (launcher != NULL && kept[1] < 0) ||
	    close_range(CHILD_GATE, CHILD_FIRST_CLOSED - 1, 0) < 0)
		return -1;
	for (int i = 0; i < KEPT; i++) {
		if (kept[i] >= 0 && dup2(kept[i], CHILD_GATE + i) < 0)
			return -1;
	}
	return close_range(CHILD_FIRST_CLOSED, ~0U, 0);
}

/* Do the child's work; never return. */
static void be_child(int gate, const struct errand *errand)
{
	char word;

	/* signals meant for slurmstepd, and its handlers, must not affect this process */
	ce_default_signals();
	if (keep_only(gate, errand->launcher) < 0 || read(CHILD_GATE, &word, 1) != 1 ||
	    ce_become_user(errand->uid, errand->gid) != NULL)
		_exit(1);
	errand->work(errand->context);
	/* done; the parent closes its ends of the session's sockets before it closes the gate */
	(void)ce_send(CHILD_GATE, DONE_WORD, 1, NULL, 0);
	ce_look(CHILD_GATE, 0, &word, 1);
	/* not exit: its handlers belong to slurmstepd */
	_exit(0);
}

static void wait_for_child(int child, int limit_ms)
{
	siginfo_t end;

	if (!ce_wait_readable(child, ce_now_ms() + limit_ms)) {
		ce_pidfd_kill(child, SIGKILL);
		ce_wait_readable(child, ce_now_ms() + 1000);
	}
	/* slurmstepd, which waits for any child, may have been quicker */
	waitid(P_PIDFD, (id_t)child, &end, WEXITED | WNOHANG);
}

/* Fork a child that starts its work once a byte arrives at the gate, and send that: until then the child
 * cannot have ended, so its pid is still its own when the pidfd is opened. Return 0, or -1 on failure; call
 * ce_end_finish in either case. */
static int start_child(struct ce_end *end, const struct errand *errand)
{
	int ends[2];

	*end = (struct ce_end){ -1, -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0)
		be_child(ends[0], errand);
	close(ends[0]);
	end->gate = ends[1];
	end->child = pid > 0 ? ce_pidfd_open(pid) : -1;
	return end->child >= 0 ? ce_send(end->gate, "g", 1, NULL, 0) : -1;
}

void ce_end_as_user(uid_t uid, gid_t gid, void (*work)(const void *), const void *context)
{
	const struct errand errand = { uid, gid, NULL, work, context };
	struct ce_end end;

	(void)start_child(&end, &errand);
	ce_end_finish(&end);
}

/* Wait for the child while the launcher saves the container. Slurm ends the launcher with the step. The
 * child, which is in slurmstepd's cgroup, may have been stopped by its user, and the launcher's socket may be
 * held by any process. So the wait is limited once the launcher has ended. */
static void wait_for_save(int gate, const struct ce_launcher *launcher)
{
	CE_AUTO_FD process = ce_launcher_process(launcher);

	if (process >= 0)
		ce_wait_either(gate, process, ce_now_ms() + SAVE_WAIT_MS);
	ce_wait_readable(gate, ce_now_ms() + CHILD_WAIT_MS);
}

void ce_end_begin(struct ce_end *end, const struct ce_launcher *launcher)
{
	const struct errand errand = { launcher->uid, launcher->gid, launcher, end_session, launcher };
	char word = 0;

	if (start_child(end, &errand) < 0 || !ce_wait_readable(end->gate, ce_now_ms() + CHILD_WAIT_MS))
		return;
	if (ce_look(end->gate, 0, &word, 1) == 1 && word == SAVING_WORD[0] && read(end->gate, &word, 1) == 1)
		wait_for_save(end->gate, launcher);
}

void ce_end_finish(struct ce_end *end)
{
	ce_close_fd(&end->gate);
	if (end->child >= 0)
		wait_for_child(end->child, FINISH_WAIT_MS);
	ce_close_fd(&end->child);
}

void ce_end_report(const struct ce_launcher *launcher, const char *cause)
{
	const struct message death = { launcher, cause };
	const struct errand errand = { launcher->uid, launcher->gid, launcher, tell, &death };
	struct ce_end end;

	if (start_child(&end, &errand) == 0)
		ce_wait_readable(end.gate, ce_now_ms() + CE_REPORT_MS);
	ce_end_finish(&end);
}

/* ---- the holder of a job's images -------------------------------------------------------------- */

/* The two ends of a socket to the holder: ours, and the one that it gets. */
static struct ce_launcher holder = CE_LAUNCHER_INIT;

void ce_holder_prepare(uid_t uid, gid_t gid)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	holder.uid = uid;
	holder.gid = gid;
	holder.reply = holder.life = ends[0];
	holder.start[CE_ARG_LIFE] = ends[1];
}

void ce_holder_end(void)
{
	const struct errand errand = { holder.uid, holder.gid, &holder, end_holder, NULL };
	struct ce_end end;

	if (holder.life < 0)
		return;
	ce_launcher_let_go(&holder);
	if (start_child(&end, &errand) == 0)
		ce_wait_readable(end.gate, ce_now_ms() + LAUNCHER_WAIT_MS + GUARD_WAIT_MS);
	ce_end_finish(&end);
	holder.reply = -1;
	ce_close_fd(&holder.life);
}

int ce_holder_life(void)
{
	return holder.start[CE_ARG_LIFE];
}
