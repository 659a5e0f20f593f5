#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"
#include "ending.h"
#include "help.h"
#include "io.h"

enum { LAUNCHER_WAIT_MS = 2000 };

static int is_over(const struct ce_launcher *launcher)
{
	struct pollfd life = { .fd = launcher->life, .events = POLLIN };

	return poll(&life, 1, 0) > 0;
}

int ce_session_wait(const struct ce_launcher *launcher, int timeout_s,
		    struct ce_container *container, struct ce_error *err)
{
	if (!ce_wait_readable(launcher->reply, ce_now_ms() + (int64_t)timeout_s * 1000))
		return ce_fail_below(err, CE_HELP_START_TIMEOUT,
				     "the container did not start within %d s", timeout_s);
	if (ce_answer_look(launcher->reply, container, err) < 0)
		return -1;
	/* Its namespaces could still be entered after its death, but its image is no longer served. */
	if (is_over(launcher))
		return ce_fail_below(err, CE_HELP_DIED,
				     "the container ended before the task could join it");
	return 0;
}

/* ---- the watching thread ----------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	pthread_t thread;
	int running;
	atomic_int ending; /* the end was asked for: a closed socket is no news */
	const struct ce_launcher *launcher;
	int *tasks; /* pidfds: a number could be somebody else's by the time it is used */
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

/* One that does not end is no reason to wait once the session is over. */
static void wait_for_launcher(void)
{
	struct pollfd fds[] = { { .fd = watch.launcher->process, .events = POLLIN },
				{ .fd = watch.launcher->life, .events = POLLIN } };

	while (poll(fds, sizeof fds / sizeof fds[0], -1) < 0 && errno == EINTR)
		;
}

/* The text came from a process of the user's and goes to slurmd's log, too. */
static void make_one_line(char *text)
{
	for (; *text != '\0'; text++) {
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = ' ';
	}
}

static int claim(const struct ce_launcher *launcher)
{
	return launcher->moments != NULL && atomic_exchange(&launcher->moments->told, 1) == 0;
}

static void find_cause(const struct ce_launcher *launcher, char cause[CE_CAUSE_SIZE])
{
	static const char killed[] = "the process that guards the container was killed";

	ssize_t n = ce_look(launcher->life, MSG_DONTWAIT, cause, CE_CAUSE_SIZE - 1);
	if (n <= 0)
		memcpy(cause, killed, sizeof killed);
	else
		cause[n] = '\0';
	make_one_line(cause);
}

static void *watch_session(void *unused)
{
	char cause[CE_CAUSE_SIZE];

	(void)unused;
	wait_for_launcher();
	/* Without its word that the container is ready there never was a session, and the tasks know
	 * why. */
	if (!ce_answer_is_ready(watch.launcher->reply))
		return NULL;
	ce_look(watch.launcher->life, 0, cause, 1);
	if (atomic_load(&watch.ending))
		return NULL;
	find_cause(watch.launcher, cause);
	if (watch.launcher->moments == NULL || claim(watch.launcher))
		watch.report(watch.context, cause);
	kill_tasks();
	/* What the tasks have started, in whatever session or process group, has lost its file
	 * system. */
	ce_ending_run(watch.launcher);
	return NULL;
}

int ce_session_died(const struct ce_launcher *launcher)
{
	return is_over(launcher) && ce_answer_is_ready(launcher->reply);
}

int ce_session_is_told(const struct ce_launcher *launcher, char cause[CE_CAUSE_SIZE])
{
	find_cause(launcher, cause);
	return !claim(launcher);
}

static void start_watching(const struct ce_launcher *launcher, ce_report_fn *report,
			   const void *context)
{
	sigset_t all, before;

	watch.launcher = launcher;
	watch.report = report;
	watch.context = context;
	/* slurmstepd handles signals in threads of its own */
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
}

/* ---- the end ----------------------------------------------------------------------------------- */

/* After its answer it hands the end of hooks to the guard and writes the trace; the tasks may end
 * before a busy machine has let it. Without an answer nothing of it is wanted any more. */
static void let_launcher_finish(const struct ce_launcher *launcher)
{
	if (ce_answer_is_ready(launcher->reply))
		ce_wait_readable(launcher->process, ce_now_ms() + LAUNCHER_WAIT_MS);
}

void ce_session_end(struct ce_launcher *launcher)
{
	/* One that died by itself is still to be reported, however quickly its tasks have ended. */
	atomic_store(&watch.ending, !is_over(launcher));
	if (launcher->process >= 0 && launcher->reply >= 0)
		let_launcher_finish(launcher);
	/* both directions: wakes our thread and tells the guard */
	if (launcher->life >= 0)
		shutdown(launcher->life, SHUT_RDWR);
	if (launcher->process >= 0)
		ce_pidfd_kill(launcher->process, SIGKILL);
	stop_watching();
	if (launcher->reply >= 0)
		ce_ending_run_last(launcher);
	ce_close_fd(&launcher->life);
	ce_close_fd(&launcher->process);
	ce_close_fd(&launcher->reply);
	atomic_store(&watch.ending, 0);
}
