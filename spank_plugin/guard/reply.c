#define _GNU_SOURCE
#include "reply.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int ce_report_await(int control, int64_t timeout_ms, struct ce_report *report)
{
	report->unshared = 0;
	for (int i = 0; i < CE_MAX_FDS; i++)
		report->fds[i] = -1;
	if (!ce_wait_readable(control, ce_now_ms() + timeout_ms))
		return -1;
	ssize_t n = ce_receive(control, 0, report->text, CE_REPORT_TEXT, report->fds);
	if (n < 0)
		return -1;
	report->text[n] = '\0';
	while (CE_REPORTED_UNSHARED + report->unshared < CE_MAX_FDS &&
	       report->fds[CE_REPORTED_UNSHARED + report->unshared] >= 0)
		report->unshared++;
	report->is_of_tasks = report->text[0] == CE_REPORT_OF_TASKS && report->unshared > 0;
	report->unshared -= report->is_of_tasks;
	if ((report->text[0] == CE_REPORT_OF_NODE || report->is_of_tasks) &&
	    report->fds[CE_REPORTED_UNSHARED - 1] >= 0 && report->unshared <= CE_MAX_UNSHARED)
		return 0;
	ce_close_all(report->fds);
	return -1;
}

enum { MAX_ANSWER = PATH_MAX + 64 };

/* Write the answer's text; return its size, or -1 if it does not fit. */
static int write_text(char text[MAX_ANSWER], const struct ce_report *report, const struct ce_ready *ready)
{
	const char *const texts[CE_TEXT_COUNT] = {
		[CE_TEXT_WORKDIR] = ready->workdir,
		[CE_TEXT_KEPT] = ready->is_of_job ? "kept" : NULL,
		[CE_TEXT_TASKS] = report->is_of_tasks ? "tasks" : NULL,
	};
	int size = 0;

	text[size++] = CE_ANSWER_READY;
	if (report->unshared > 0)
		text[size++] = (char)('0' + report->unshared);
	for (int i = 0; i < CE_TEXT_COUNT; i++) {
		size_t length = texts[i] != NULL ? strlen(texts[i]) : 0;
		if ((size_t)size + length + 1 > MAX_ANSWER)
			return -1;
		if (length > 0)
			memcpy(text + size, texts[i], length);
		size += (int)length;
		text[size++] = '\0';
	}
	return size - 1; /* the last string ends with the packet */
}

int ce_reply_ready(int reply, int *life, const struct ce_report *report, const struct ce_ready *ready)
{
	char text[MAX_ANSWER];
	CE_AUTO_FD records = ce_memory_file("ce-env", ready->records, ready->records_size);
	/* passed twice, as the launcher and as what ends last: the plugin has nothing else to wait for */
	CE_AUTO_FD self = ce_pidfd_open(getpid());
	int length = write_text(text, report, ready), count = CE_ANSWER_UNSHARED;
	const int *found = report->fds;
	int fds[CE_MAX_FDS] = {
		[CE_ANSWER_USER_NS] = found[CE_REPORTED_USER_NS],
		[CE_ANSWER_MOUNT_NS] = found[CE_REPORTED_MOUNT_NS],
		[CE_ANSWER_ENVIRONMENT] = records,
		[CE_ANSWER_GUARD] = found[CE_REPORTED_GUARD],
		[CE_ANSWER_LAUNCHER] = self,
		[CE_ANSWER_ATTENDED] = self,
	};

	if (records < 0 || self < 0 || length < 0)
		return -1;
	for (int i = 0; i < report->unshared; i++)
		fds[count++] = found[CE_REPORTED_UNSHARED + i];
	if (report->is_of_tasks)
		fds[count++] = found[CE_REPORTED_UNSHARED + report->unshared];
	if (ready->trace_file >= 0) {
		fds[count++] = ready->trace_file;
		fds[count++] = ready->trace_directory;
	}
	/* from now on only the guard has this socket, so that its end is noticed at once */
	ce_close_fd(life);
	return ce_send(reply, text, (size_t)length, fds, (size_t)count) == 0 ? 0 : 1;
}
