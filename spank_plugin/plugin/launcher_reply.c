#define _GNU_SOURCE
#include "launcher_reply.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "common/help.h"
#include "common/io.h"

enum { MAX_ANSWER = 64 * 1024 };

/* "F<exit code>\n<message>": the launcher could not start the container. */
static int failure(const char *answer, struct ce_error *err)
{
	const char *message = strchr(answer, '\n');
	int code = atoi(answer + 1);

	err->below = ""; /* already part of the launcher's message */
	return ce_fail_code(err, code > 0 && code < 256 ? code : CE_EXIT_ENGINE, "%s",
			    message != NULL ? message + 1 : answer + 1);
}

/* Return the string that follows this one in a buffer with NULs at its end; an empty one if there is none. */
static const char *next_string(const char *text, const char *end)
{
	const char *next = text + strlen(text);

	return next < end ? next + 1 : next;
}

/* "R[n]<workdir>\0<notices>\0<output>\0<kept>\0<saved>\0<tasks>", where all strings but the first may be
 * absent. n, a digit, is the number of the container's other namespaces. The descriptors, in this order: user
 * namespace, mount namespace, environment, guard, launcher, attended; n other namespaces; with <tasks>, the
 * socket at which tasks ask; trace and marks, both of which may be absent. */
static int ready(const char *answer, size_t size, int fds[CE_MAX_FDS],
		 struct ce_container *container, struct ce_error *err)
{
	/* the buffer is longer than any packet and filled with NULs */
	const char *end = answer + size;
	const char *notices = next_string(answer, end), *output = next_string(notices, end);
	const char *kept = next_string(output, end), *saved = next_string(kept, end);
	int is_of_tasks = *next_string(saved, end) != '\0';

	int unshared = answer[1] >= '1' && answer[1] <= '0' + CE_MAX_UNSHARED ? answer[1] - '0' : 0;

	for (int i = 0; i < unshared; i++)
		container->unshared[i] = fds[6 + i];
	container->user_ns = fds[0];
	container->mount_ns = fds[1];
	container->environment = fds[2];
	container->guard = fds[3];
	container->launcher = fds[4];
	container->attended = fds[5];
	if (is_of_tasks)
		container->tasks = fds[6 + unshared];
	container->trace = fds[6 + unshared + is_of_tasks];
	container->marks = fds[7 + unshared + is_of_tasks];
	container->workdir = strdup(answer + 1 + (unshared > 0));
	container->notices = strdup(notices);
	container->entrypoint_output = strdup(output);
	container->is_kept = *kept != '\0';
	container->is_saved = *saved != '\0';
	if (fds[5 + unshared + is_of_tasks] < 0 || container->workdir == NULL || container->notices == NULL ||
	    container->entrypoint_output == NULL)
		return ce_fail(err, "the launcher's answer is not complete");
	return 0;
}

int ce_reply_look(int reply, struct ce_container *container, struct ce_error *err)
{
	int fds[CE_MAX_FDS];
	CE_AUTO_FREE char *answer = calloc(1, MAX_ANSWER + 1);

	if (answer == NULL)
		return ce_fail(err, "out of memory");
	ssize_t n = ce_receive(reply, MSG_PEEK | MSG_DONTWAIT, answer, MAX_ANSWER, fds);
	if (n < 0)
		return ce_fail(err, "cannot read the launcher's answer: %s", strerror(errno));
	if (n > 0 && answer[0] == 'R')
		return ready(answer, (size_t)n, fds, container, err);
	ce_close_all(fds);
	if (n == 0)
		return ce_fail_below(err, CE_HELP_LAUNCHER_ENDED,
				     "the launcher ended before the container was ready");
	return failure(answer, err);
}

int ce_reply_await_save(int reply, int launcher, int64_t deadline_ms, char *text, size_t size)
{
	char dropped;

	shutdown(reply, SHUT_WR);
	/* the first answer; the kernel closes the descriptors that nobody takes */
	(void)recv(reply, &dropped, 1, MSG_DONTWAIT);
	(void)ce_wait_either(reply, launcher, deadline_ms);
	ssize_t n = recv(reply, text, size - 1, MSG_DONTWAIT);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 && text[0] == 'S';
}

int ce_reply_is_ready(int reply)
{
	char kind;

	return ce_look(reply, MSG_DONTWAIT, &kind, 1) > 0 && kind == 'R';
}
