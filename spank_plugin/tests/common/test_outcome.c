/* The report on a container with limits when its command has ended. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "common/outcome.h"
#include "harness.h"

static int status, json, guard = -1;
static struct ce_whose whose;
static struct ce_outcome outcome = { .is_watched = 1, .peak = 7 };

static void report(void)
{
	const struct ce_ending ending = { .status = status, .took_ms = 1000, .largest = 0 };

	CE_AUTO_FD file = ce_memory_file("outcome", &outcome, sizeof outcome);
	ce_outcome_report(file, json, guard, &whose, &ending);
}

/* Report the end of a command with this status of waitpid; return the JSON, which the caller frees. */
static char *reported(int wait_status)
{
	size_t size = 0;

	CE_AUTO_FD file = ce_memory_file("json", "", 0);
	json = file;
	status = wait_status;
	CHECK_INT(test_in_child(report), 0);
	return ce_read_file_at(file, 1000, &size);
}

TEST("a command that ended before its container was killed for a limit has reached none")
{
	strcpy(outcome.limit, "time");
	strcpy(outcome.text, CE_CAUSE_LIMIT "it ran for longer");
	CE_AUTO_FREE char *killed = reported(SIGKILL);
	CHECK_CONTAINS(killed, "\"exit_code\": 137, \"signal\": 9, \"limit\": \"time\"");
	CHECK_CONTAINS(test_printed, "error: the container was ended: it ran for longer");
	CE_AUTO_FREE char *ended = reported(3 << 8);
	CHECK_CONTAINS(ended, "\"exit_code\": 3, \"signal\": null, \"limit\": null");
	CHECK_TEXT(test_printed, "");
}

TEST("a command whose container was refused processes ends as it will, with a warning")
{
	strcpy(outcome.limit, "pids");
	strcpy(outcome.text, "further ones were refused");
	CE_AUTO_FREE char *ended = reported(0);
	CHECK_CONTAINS(ended, "\"exit_code\": 0, \"signal\": null, \"limit\": \"pids\"");
	CHECK_CONTAINS(test_printed, "warning: further ones were refused");
}

TEST("a container that ends for no limit says why, and so does the JSON")
{
	outcome.limit[0] = '\0';
	strcpy(outcome.text, CE_CAUSE_GONE "'/a\"b\\c\303' was removed");
	CE_AUTO_FREE char *killed = reported(SIGKILL);
	CHECK_CONTAINS(killed, "\"limit\": null");
	CHECK_CONTAINS(killed, "\"error\": \"the image can no longer be read: '/a?b?c?' was removed\"}");
	CHECK_CONTAINS(test_printed, "error: the image can no longer be read: '/a\"b\\c\303' was removed");
	CE_AUTO_FREE char *failed = reported(1 << 8);
	CHECK_CONTAINS(failed, "\"error\": \"the image");
	CE_AUTO_FREE char *ended = reported(0);
	CHECK_CONTAINS(ended, "\"error\": null}");
	CHECK_TEXT(test_printed, "");
}

TEST("a command that cannot be executed has the reason in its JSON, which is printed elsewhere")
{
	strcpy(outcome.limit, "pids");
	strcpy(outcome.text, "further ones were refused");
	CE_AUTO_FD file = ce_memory_file("outcome", &outcome, sizeof outcome);
	ce_outcome_failed(file, "nosuch: not \"found\"");
	ce_outcome_read(file, &outcome);
	CE_AUTO_FREE char *failed = reported(127 << 8);
	CHECK_CONTAINS(failed, "{\"version\": 1, \"started\": false, \"exit_code\": 127");
	CHECK_CONTAINS(failed, "\"limit\": \"pids\"");
	CHECK_CONTAINS(failed, "\"error\": \"nosuch: not ?found?\"}");
	CHECK_CONTAINS(test_printed, "warning: further ones were refused");
	outcome.failed[0] = '\0';
}

TEST("each task has a line, and the first one of a step the lines of help")
{
	CE_AUTO_FD marks = open(test_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	whose = (struct ce_whose){ "n1", "3", "once", marks };
	strcpy(outcome.limit, "time");
	strcpy(outcome.text, CE_CAUSE_LIMIT "it ran for longer");
	free(reported(SIGKILL));
	CHECK_CONTAINS(test_printed, "ce: error: n1: task 3: the container was ended: it ran for longer\n");
	CHECK_CONTAINS(test_printed, "ce: see: ce help container-limit");
	whose.task = "14";
	free(reported(SIGKILL));
	CHECK_TEXT(test_printed, "ce: error: n1: task 14: the container was ended: it ran for longer\n");
	whose = (struct ce_whose){ .marks = -1 };
}

TEST("the end of the guard is the cause if it could not report one")
{
	int ends[2];

	CHECK_INT(pipe(ends), 0);
	guard = ends[0];
	memset(outcome.limit, 0, sizeof outcome.limit);
	memset(outcome.text, 0, sizeof outcome.text);
	CE_AUTO_FREE char *alone = reported(SIGKILL);
	CHECK_CONTAINS(alone, "\"limit\": null");
	CHECK_CONTAINS(alone, "\"error\": null}");
	CHECK_TEXT(test_printed, "");
	close(ends[1]);
	for (int is_warned = 0; is_warned < 2; is_warned++) {
		strcpy(outcome.limit, is_warned ? "pids" : "");
		strcpy(outcome.text, is_warned ? "further ones were refused" : "");
		CE_AUTO_FREE char *killed = reported(SIGKILL);
		CHECK_CONTAINS(killed, "\"limit\": null");
		CHECK_CONTAINS(killed, "\"error\": \"" CE_CAUSE_KILLED "\"}");
		CHECK_CONTAINS(test_printed, "error: " CE_CAUSE_KILLED);
	}
	close(ends[0]);
	guard = -1;
}
