#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "io.h"
#include "sweep.h"

enum { MAX_ANSWER = 64 * 1024, END_WAIT_MS = 2000 };

/* ---- the launcher's answer --------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* 1 when readable or closed, 0 at the deadline. */
static int wait_readable(int fd, int64_t deadline_ms)
{
	for (;;) {
		int64_t left = deadline_ms - now_ms();
		struct pollfd entry = { .fd = fd, .events = POLLIN };
		int rc = poll(&entry, 1, left > 0 ? (int)left : 0);
		if (rc > 0)
			return 1;
		if (rc == 0 || errno != EINTR)
			return 0;
	}
}

/* "F<exit code>\n<message>": the launcher could not start the container. */
static int failure(const char *answer, struct ce_error *err)
{
	const char *message = strchr(answer, '\n');
	int code = atoi(answer + 1);

	return ce_fail_code(err, code > 0 && code < 256 ? code : CE_EXIT_ENGINE, "%s",
			    message != NULL ? message + 1 : answer + 1);
}

/* "R<workdir>" with the four descriptors of struct ce_container. */
static int ready(const char *answer, int fds[CE_MAX_FDS], struct ce_container *container,
		 struct ce_error *err)
{
	container->user_ns = fds[0];
	container->mount_ns = fds[1];
	container->environment = fds[2];
	container->guard = fds[3];
	container->workdir = strdup(answer + 1);
	if (fds[3] < 0 || container->workdir == NULL)
		return ce_fail(err, "the launcher's answer is not complete");
	return 0;
}

static int take_answer(int socket, int flags, struct ce_container *container, struct ce_error *err)
{
	int fds[CE_MAX_FDS];
	CE_AUTO_FREE char *answer = calloc(1, MAX_ANSWER + 1);

	if (answer == NULL)
		return ce_fail(err, "out of memory");
	ssize_t n = ce_receive(socket, flags | MSG_DONTWAIT, answer, MAX_ANSWER, fds);
	if (n < 0)
		return ce_fail(err, "cannot read the launcher's answer: %s", strerror(errno));
	if (n > 0 && answer[0] == 'R')
		return ready(answer, fds, container, err);
	for (size_t i = 0; i < CE_MAX_FDS; i++)
		ce_close_fd(&fds[i]);
	if (n == 0)
		return ce_fail(err, "the launcher ended before the container was ready");
	return failure(answer, err);
}

static int is_over(const struct ce_launcher *launcher)
{
	struct pollfd life = { .fd = launcher->life, .events = POLLIN };

	return poll(&life, 1, 0) > 0;
}

int ce_session_wait(const struct ce_launcher *launcher, int timeout_s,
		    struct ce_container *container, struct ce_error *err)
{
	if (!wait_readable(launcher->reply, now_ms() + (int64_t)timeout_s * 1000))
		return ce_fail(err, "the container did not start within %d s", timeout_s);
	if (take_answer(launcher->reply, MSG_PEEK, container, err) < 0)
		return -1;
	/* Its namespaces could still be entered after its death, but its image is no longer served. */
	if (is_over(launcher))
		return ce_fail(err, "the container ended before the task could join it");
	return 0;
}

/* ---- the watching thread ----------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	pthread_t thread;
	int running;
	atomic_int ending; /* the end was asked for: a closed socket is no news */
	int life;
	int launcher; /* pidfd */
	int reply;
	int *tasks; /* pidfds: a number could be somebody else's by the time it is used */
	size_t task_count;
	ce_report_fn *report;
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER, .life = -1, .launcher = -1, .reply = -1 };

static void kill_tasks(void)
{
	pthread_mutex_lock(&watch.lock);
	for (size_t i = 0; i < watch.task_count; i++)
		ce_pidfd_kill(watch.tasks[i], SIGKILL);
	pthread_mutex_unlock(&watch.lock);
}

/* What the tasks have started, in whatever session or process group, has lost its file system. */
static void sweep_container(int flags)
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;

	if (take_answer(watch.reply, flags, &container, &err) == 0)
		ce_sweep(container.mount_ns);
	ce_container_close(&container);
	ce_error_clear(&err);
}

static int was_ready(int reply)
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;
	int rc = take_answer(reply, MSG_PEEK, &container, &err);

	ce_container_close(&container);
	ce_error_clear(&err);
	return rc == 0;
}

static void *watch_session(void *unused)
{
	char cause[512] = "";
	int fds[CE_MAX_FDS];

	(void)unused;
	/* Without the launcher's word that the container is ready there never was a session, and the
	 * tasks know why. */
	struct pollfd launcher_end = { .fd = watch.launcher, .events = POLLIN };
	while (poll(&launcher_end, 1, -1) < 0 && errno == EINTR)
		;
	if (!was_ready(watch.reply))
		return NULL;
	ssize_t n = ce_receive(watch.life, 0, cause, sizeof cause - 1, fds);
	if (atomic_load(&watch.ending))
		return NULL;
	watch.report(n > 0 ? cause : "the process that guards the container was killed");
	kill_tasks();
	sweep_container(MSG_PEEK);
	return NULL;
}

int ce_session_died(const struct ce_launcher *launcher)
{
	return is_over(launcher) && was_ready(launcher->reply);
}

static void start_watching(const struct ce_launcher *launcher, ce_report_fn *report)
{
	sigset_t all, before;

	watch.life = launcher->life;
	watch.launcher = launcher->process;
	watch.reply = launcher->reply;
	watch.report = report;
	/* slurmstepd handles signals in threads of its own */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	watch.running = pthread_create(&watch.thread, NULL, watch_session, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ce_session_guard_task(const struct ce_launcher *launcher, pid_t pid, ce_report_fn *report)
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
		start_watching(launcher, report);
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

/* Also ends what a task has left running: its image is no longer served, and it would keep the
 * container's mounts. */
static void wait_for_guard(const struct ce_launcher *launcher)
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_container container = CE_CONTAINER_INIT;

	/* Without an answer the guard learns of the end from the launcher's; nothing to wait on. */
	if (take_answer(launcher->reply, 0, &container, &err) == 0) {
		if (!wait_readable(container.guard, now_ms() + END_WAIT_MS)) {
			ce_pidfd_kill(container.guard, SIGKILL);
			wait_readable(container.guard, now_ms() + END_WAIT_MS);
		}
		ce_sweep(container.mount_ns);
	}
	ce_container_close(&container);
	ce_error_clear(&err);
}

void ce_session_end(struct ce_launcher *launcher)
{
	/* One that died by itself is still to be reported, however quickly its tasks have ended. */
	atomic_store(&watch.ending, !is_over(launcher));
	/* both directions: wakes our thread and tells the guard */
	if (launcher->life >= 0)
		shutdown(launcher->life, SHUT_RDWR);
	if (launcher->process >= 0)
		ce_pidfd_kill(launcher->process, SIGKILL);
	if (launcher->reply >= 0)
		wait_for_guard(launcher);
	stop_watching();
	ce_close_fd(&launcher->life);
	ce_close_fd(&launcher->process);
	ce_close_fd(&launcher->reply);
	atomic_store(&watch.ending, 0);
}
