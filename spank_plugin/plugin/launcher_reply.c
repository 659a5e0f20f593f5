#define _GNU_SOURCE
#include "launcher_reply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/io.h"
#include "common/protocol.h"
#include "generated/help.h"

enum { MAX_ANSWER = 64 * 1024 };

/* The launcher could not start the container. */
static int failure(const char *answer, struct ce_error *err)
{
	const char *message = strchr(answer, '\n');
	int code = atoi(answer + 1);

	err->is_of_launcher = 1;
	return ce_fail_code(err, code > 0 && code < 256 ? code : CE_EXIT_ENGINE, "%s",
			    message != NULL ? message + 1 : answer + 1);
}

/* Return the string that follows this one in a buffer with NULs at its end; an empty one if there is none. */
static const char *next_string(const char *text, const char *end)
{
	const char *next = text + strlen(text);

	return next < end ? next + 1 : next;
}

/* Return a string of an answer, which begin at `first`. Its buffer is longer than any packet and filled with
 * NULs. */
static const char *find_text(const char *first, const char *end, enum ce_answer_text place)
{
	for (int i = 0; i < (int)place; i++)
		first = next_string(first, end);
	return first;
}

static int ready(const char *answer, size_t size, int fds[CE_MAX_FDS],
		 struct ce_container *container, struct ce_error *err)
{
	int unshared = answer[1] >= '1' && answer[1] <= '0' + CE_MAX_UNSHARED ? answer[1] - '0' : 0;
	const char *first = answer + 1 + (unshared > 0), *end = answer + size;
	int next = CE_ANSWER_UNSHARED;

	container->user_ns = fds[CE_ANSWER_USER_NS];
	container->mount_ns = fds[CE_ANSWER_MOUNT_NS];
	container->environment = fds[CE_ANSWER_ENVIRONMENT];
	container->guard = fds[CE_ANSWER_GUARD];
	container->launcher = fds[CE_ANSWER_LAUNCHER];
	container->attended = fds[CE_ANSWER_ATTENDED];
	for (int i = 0; i < unshared; i++)
		container->unshared[i] = fds[next++];
	if (*find_text(first, end, CE_TEXT_TASKS) != '\0')
		container->tasks = fds[next++];
	int last = fds[next - 1];
	container->trace = fds[next++];
	container->marks = fds[next];
	container->workdir = strdup(find_text(first, end, CE_TEXT_WORKDIR));
	container->notices = strdup(find_text(first, end, CE_TEXT_NOTICES));
	container->entrypoint_output = strdup(find_text(first, end, CE_TEXT_OUTPUT));
	container->is_of_job = *find_text(first, end, CE_TEXT_KEPT) != '\0';
	container->is_saved = *find_text(first, end, CE_TEXT_SAVED) != '\0';
	if (last < 0 || container->workdir == NULL || container->notices == NULL ||
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
	if (n > 0 && answer[0] == CE_ANSWER_READY)
		return ready(answer, (size_t)n, fds, container, err);
	ce_close_all(fds);
	if (n == 0)
		return ce_fail_below(err, CE_HELP_LAUNCHER_ENDED,
				     "the launcher ended before the container was ready");
	return failure(answer, err);
}

static const char unsaved[] =
	"F--container-save: nothing was saved: the process that saves the container was killed, for "
	"example by scancel or a time limit\nce: hint: to save the container before the end of its step, use "
	"ce save\nce: see: ce help container-save";

int ce_reply_await_save(int reply, int launcher, int64_t deadline_ms, char *text, size_t size)
{
	char dropped;

	shutdown(reply, SHUT_WR);
	/* the first answer; the kernel closes the descriptors that nobody takes */
	(void)recv(reply, &dropped, 1, MSG_DONTWAIT);
	(void)ce_wait_either(reply, launcher, deadline_ms);
	ssize_t n = recv(reply, text, size - 1, MSG_DONTWAIT);
	if (n > 0)
		text[n] = '\0';
	else
		snprintf(text, size, "%s", unsaved);
	return text[0] == CE_ANSWER_SAVED;
}

int ce_reply_is_ready(int reply)
{
	char kind;

	return ce_look(reply, MSG_DONTWAIT, &kind, 1) > 0 && kind == CE_ANSWER_READY;
}
