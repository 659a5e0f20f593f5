/* Receives a guard's report that its container is ready, and answers the plugin with it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/io.h"
#include "common/protocol.h"

enum { CE_REPORT_TEXT = 64 * 1024 };

/* A guard's report (enum ce_report_kind). It owns its descriptors. */
struct ce_report {
	int fds[CE_MAX_FDS];
	int unshared; /* how many other namespaces there are */
	int is_of_tasks; /* whether the socket at which tasks ask for a container follows them */
	char text[CE_REPORT_TEXT + 1];
};

/* The parts of the answer that are not in the guard's report. */
struct ce_ready {
	const char *workdir, *records;
	size_t records_size;
	int is_of_job;
	int trace_file, trace_directory; /* both -1 for none */
};

/* Wait for the guard's report. Return 0, or -1 if there is none in time or it does not report a ready
 * container; then no descriptor is left open. */
int ce_report_await(int control, int64_t timeout_ms, struct ce_report *report);

/* Close *life and answer as the launcher does (enum ce_answer_kind). This process must end soon
 * afterwards, because the plugin waits for that. Return 0, 1 if the plugin does not take the answer, -1 if
 * anything fails before that, with *life open. */
int ce_reply_ready(int reply, int *life, const struct ce_report *report, const struct ce_ready *ready);
