/* Receives the report of a guard whose container runs, and answers the plugin with it. */
#ifndef CE_NODE_REPLY_H
#define CE_NODE_REPLY_H

#include <stddef.h>
#include <stdint.h>

#include "common/io.h"

enum { CE_REPORT_TEXT = 64 * 1024 };

/* Owns its descriptors: user and mount namespace, environment, guard, mounts, other namespaces of its own. */
struct ce_report {
	int fds[CE_MAX_FDS];
	int unshared; /* how many of the last ones there are */
	int is_of_tasks; /* whether the socket at which tasks ask for a container follows them */
	char text[CE_REPORT_TEXT + 1]; /* "R", the guard's times, and after a NUL what its children printed */
};

enum { CE_REPORTED_ENVIRONMENT = 2 };

/* The part of the answer that the guard does not report. */
struct ce_ready {
	const char *workdir, *records;
	size_t records_size;
	int is_kept;
	int trace_file, trace_directory; /* both -1 for none */
};

/* Wait for the guard's report. Return -1 for a doubt, which leaves no descriptor open. */
int ce_report_await(int control, int64_t timeout_ms, struct ce_report *report);

/* Close *life and answer as the launcher does (plugin/launcher_reply.c); this process has to end soon afterwards. Return 1
 * if the plugin does not take it, -1 for a doubt before that, with *life open. */
int ce_reply_ready(int reply, int *life, const struct ce_report *report, const struct ce_ready *ready);

#endif
