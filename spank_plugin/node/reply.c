#define _GNU_SOURCE
#include "reply.h"

#include <limits.h>
#include <stdio.h>

#include "common/join.h"

/* the least number of descriptors in a report */
enum { REPORTED = 5 };

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
	while (REPORTED + report->unshared < CE_MAX_FDS && report->fds[REPORTED + report->unshared] >= 0)
		report->unshared++;
	report->is_of_tasks = report->text[0] == CE_REPORT_OF_TASKS && report->unshared > 0;
	report->unshared -= report->is_of_tasks;
	if ((report->text[0] == CE_REPORT_OF_NODE || report->is_of_tasks) && report->fds[REPORTED - 1] >= 0 &&
	    report->unshared <= CE_MAX_UNSHARED)
		return 0;
	ce_close_all(report->fds);
	return -1;
}

int ce_reply_ready(int reply, int *life, const struct ce_report *report, const struct ce_ready *ready)
{
	char text[PATH_MAX + 64], digit[] = { (char)('0' + report->unshared), '\0' };
	CE_AUTO_FD records = ce_memory_file("ce-env", ready->records, ready->records_size);
	/* passed twice, as the launcher and as what ends last: the plugin has nothing else to wait for */
	CE_AUTO_FD self = ce_pidfd_open(getpid());
	const int *found = report->fds;
	int fds[CE_MAX_FDS] = { found[0], found[1], records, found[3], self, self }, count = 6;
	int length = snprintf(text, sizeof text, "R%s%s%c%c%c%s%c%c%s", report->unshared > 0 ? digit : "",
			      ready->workdir, 0, 0, 0, ready->is_kept ? "kept" : "", 0, 0,
			      report->is_of_tasks ? "tasks" : "");

	if (records < 0 || self < 0 || length < 0 || (size_t)length >= sizeof text)
		return -1;
	for (int i = 0; i < report->unshared; i++)
		fds[count++] = found[REPORTED + i];
	if (report->is_of_tasks)
		fds[count++] = found[REPORTED + report->unshared];
	if (ready->trace_file >= 0) {
		fds[count++] = ready->trace_file;
		fds[count++] = ready->trace_directory;
	}
	/* from now on only the guard has this socket, so that its end is noticed at once */
	ce_close_fd(life);
	return ce_send(reply, text, (size_t)length, fds, (size_t)count) == 0 ? 0 : 1;
}
