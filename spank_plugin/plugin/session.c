#define _GNU_SOURCE
#include "session.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "common/outcome.h"
#include "common/say.h"
#include "generated/help.h"
#include "launcher_reply.h"

/* how far apart in time Slurm's SIGKILL may reach the processes of one step, on a busy machine */
enum { KILL_SPREAD_MS = 1000, KILL_WAIT_MS = 500, LOOK_MS = 10 };
/* how long after its tasks have failed, for lack of their image, the death of a container may be noticed */
enum { FAILED_WAIT_MS = 300 };

static int is_over(const struct ce_launcher *launcher)
{
	return ce_wait_readable(launcher->life, 0);
}

int ce_session_wait(const struct ce_launcher *launcher, int timeout_s,
		    struct ce_container *container, struct ce_error *err)
{
	if (!ce_wait_readable(launcher->reply, ce_now_ms() + (int64_t)timeout_s * 1000))
		return ce_fail_below(err, CE_HELP_START_TIMEOUT,
				     "the container did not start within %d s", timeout_s);
	if (ce_reply_look(launcher->reply, container, err) < 0)
		return -1;
	/* The namespaces could still be entered after the container's death, but the
	 * image is no longer served. */
	if (is_over(launcher))
		return ce_fail_below(err, CE_HELP_CONTAINER_DIED,
				     "the container ended before the task could join it");
	return 0;
}

/* ---- the watching thread ----------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	pthread_t thread;
	int running;
	atomic_int ending; /* the end was requested: a closed socket is not an error */
	atomic_int exited; /* tasks that slurmstepd has waited for */
	atomic_llong killed; /* when slurmstepd last found a killed task, as ce_now_ms; 0 for never */
	atomic_int failed; /* a task crashed or failed */
	const struct ce_launcher *launcher;
	int *tasks; /* pidfds, because a pid could be reused before it is used */
	size_t task_count;
	ce_report_fn *report;
	const void *context;
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void kill_tasks(void)
{
	pthread_mutex_lock(&watch.lock);
	for (size_t i = 0; i < watch.task_count; i++)
		ce_pidfd_kill(watch.tasks[i], SIGKILL);
	pthread_mutex_unlock(&watch.lock);
}

/* Return whether Slurm is killing the whole step. It does that when a step is cancelled, reaches a limit
 * or loses a task under --kill-on-bad-exit, and in any order: that the guard was among the first does not
 * mean that the container died by itself. The tasks then also end by SIGKILL, or by the signal that
 * preceded it, at about the same time. */
static int is_killed_with_tasks(void)
{
	int64_t now = ce_now_ms();

	for (int64_t deadline = now + KILL_WAIT_MS; ce_now_ms() < deadline;) {
		int64_t killed = atomic_load(&watch.killed);
		if (killed > 0 && killed > now - KILL_SPREAD_MS)
			return 1;
		pthread_mutex_lock(&watch.lock);
		int left = (int)watch.task_count - atomic_load(&watch.exited);
		pthread_mutex_unlock(&watch.lock);
		if (left <= 0)
			return 0;
		poll(NULL, 0, LOOK_MS);
	}
	return 0;
}

static int claim(const struct ce_launcher *launcher)
{
	return atomic_exchange(&launcher->shared->reported, 1) == 0;
}

static void find_cause(const struct ce_launcher *launcher, char cause[CE_CAUSE_SIZE])
{
	static const char killed[] = CE_CAUSE_KILLED;

	ssize_t n = ce_look(launcher->life, MSG_DONTWAIT, cause, CE_CAUSE_SIZE - 1);
	if (n <= 0)
		memcpy(cause, killed, sizeof killed);
	else
		cause[n] = '\0';
	ce_make_one_line(cause);
}

static void *watch_session(void *unused)
{
	char cause[CE_CAUSE_SIZE];
	struct ce_end end;

	(void)unused;
	while (!ce_wait_readable(watch.launcher->life, ce_now_ms() + INT_MAX))
		;
	/* If the launcher never reported that the container is ready, there was no
	 * session, and the tasks know why. */
	if (!ce_reply_is_ready(watch.launcher->reply))
		return NULL;
	find_cause(watch.launcher, cause);
	/* the tasks of a container that was ended for a limit are killed, too */
	if (atomic_load(&watch.ending) || (!ce_is_limit(cause) && is_killed_with_tasks()))
		return NULL;
	if (claim(watch.launcher))
		watch.report(watch.context, cause);
	kill_tasks();
	/* The processes that the tasks have started, in any session or process group,
	 * have lost their file system. */
	ce_end_begin(&end, watch.launcher);
	ce_end_finish(&end);
	return NULL;
}

int ce_session_died(const struct ce_launcher *launcher)
{
	return is_over(launcher) && ce_reply_is_ready(launcher->reply);
}

int ce_session_claim_report(const struct ce_launcher *launcher, char cause[CE_CAUSE_SIZE])
{
	find_cause(launcher, cause);
	return claim(launcher);
}

static void start_watching(const struct ce_launcher *launcher, ce_report_fn *report,
			   const void *context)
{
	sigset_t all, before;

	watch.launcher = launcher;
	watch.report = report;
	watch.context = context;
	/* slurmstepd handles signals in its own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	watch.running = pthread_create(&watch.thread, NULL, watch_session, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ce_session_guard_task(const struct ce_launcher *launcher, pid_t pid, ce_report_fn *report,
			   const void *context)
{
	int pidfd = ce_pidfd_open(pid);

	if (pidfd < 0)
		return;
	pthread_mutex_lock(&watch.lock);
	int *more = realloc(watch.tasks, (watch.task_count + 1) * sizeof *more);
	if (more != NULL) {
		watch.tasks = more;
		watch.tasks[watch.task_count++] = pidfd;
	} else {
		close(pidfd);
	}
	if (!watch.running)
		start_watching(launcher, report, context);
	pthread_mutex_unlock(&watch.lock);
}

/* Return whether the process was ended by a signal of the kinds that are sent on purpose, unlike SIGBUS, by
 * which a program crashes without its image. */
static int is_ended(int status)
{
	static const int signals[] = { SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU };
	int found = 0;

	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		found |= WIFSIGNALED(status) && WTERMSIG(status) == signals[i];
	return found;
}

/* Return whether the process crashed or failed. Without its image it may do so in any way: by SIGBUS, with
 * 126 from a shell that can execute nothing more, with 1 from a program that cannot read. */
static int is_failed(int status)
{
	return (WIFSIGNALED(status) && !is_ended(status)) ||
	       (WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

int ce_session_note_exit(int status)
{
	if (is_ended(status))
		atomic_store(&watch.killed, ce_now_ms());
	if (is_failed(status))
		atomic_store(&watch.failed, 1);
	atomic_fetch_add(&watch.exited, 1);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
}

static void stop_watching(void)
{
	if (watch.running)
		pthread_join(watch.thread, NULL);
	watch.running = 0;
	for (size_t i = 0; i < watch.task_count; i++)
		close(watch.tasks[i]);
	free(watch.tasks);
	watch.tasks = NULL;
	watch.task_count = 0;
	atomic_store(&watch.exited, 0);
	atomic_store(&watch.killed, 0);
	atomic_store(&watch.failed, 0);
}

/* ---- the end ----------------------------------------------------------------------------------- */

void ce_session_end(struct ce_launcher *launcher)
{
	struct ce_end end;

	/* A container that died by itself must still be reported, however quickly its tasks have ended. */
	if (atomic_load(&watch.failed))
		ce_wait_readable(launcher->life, ce_now_ms() + FAILED_WAIT_MS);
	atomic_store(&watch.ending, !is_over(launcher));
	ce_launcher_let_go(launcher);
	ce_end_begin(&end, launcher);
	/* Both directions: this wakes our thread, and signals the end to the guard if that has not been
	 * done. */
	shutdown(launcher->life, SHUT_RDWR);
	stop_watching();
	/* Close these while the child holds them, too: the last process to close a socket also closes what is
	 * left in its queue, and closing descriptors that a user has sent may block. */
	ce_close_fd(&launcher->life);
	ce_close_fd(&launcher->reply);
	ce_close_fd(&launcher->process);
	ce_end_finish(&end);
	atomic_store(&watch.ending, 0);
}
