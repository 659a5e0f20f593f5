#define _GNU_SOURCE
#include "outcome.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generated/help.h"
#include "io.h"
#include "say.h"

int ce_outcome_make(void)
{
	const struct ce_outcome none = { .is_watched = 0 };
	CE_AUTO_FD file = memfd_create("ce-outcome", MFD_CLOEXEC);

	if (file < 0 || pwrite(file, &none, sizeof none, 0) != (ssize_t)sizeof none)
		return -1;
	return ce_release_fd(&file);
}

void ce_outcome_read(int file, struct ce_outcome *outcome)
{
	if (file < 0 || pread(file, outcome, sizeof *outcome, 0) != (ssize_t)sizeof *outcome)
		memset(outcome, 0, sizeof *outcome);
	outcome->limit[sizeof outcome->limit - 1] = '\0';
	outcome->text[sizeof outcome->text - 1] = '\0';
}

void ce_outcome_failed(int file)
{
	const uint64_t failed = 1;

	if (file >= 0 && pwrite(file, &failed, sizeof failed, offsetof(struct ce_outcome, failed)) < 0)
		return;
}

static void say(const struct ce_outcome *outcome, const char *node)
{
	int is_end = ce_is_limit(outcome->text);

	if (is_end && node != NULL)
		ce_say_error(node, outcome->text, CE_HELP_CONTAINER_LIMIT);
	else if (node != NULL)
		ce_say(node, "warning", outcome->text);
	else
		ce_say_here(is_end ? "error" : "warning", outcome->text,
			    is_end ? CE_HELP_CONTAINER_LIMIT : "");
}

static void write_json(int json, const struct ce_outcome *outcome, const struct ce_ending *ending)
{
	char killed[16] = "null", limit[16] = "null", peak[32] = "null", text[512];
	int status = ending->status;
	int is_killed = WIFSIGNALED(status);

	if (is_killed)
		snprintf(killed, sizeof killed, "%d", WTERMSIG(status));
	if (outcome->limit[0] != '\0')
		snprintf(limit, sizeof limit, "\"%s\"", outcome->limit);
	if (outcome->is_watched)
		snprintf(peak, sizeof peak, "%" PRIu64,
			 outcome->peak > ending->largest ? outcome->peak : ending->largest);
	int length = snprintf(text, sizeof text,
			      "{\"version\": 1, \"started\": %s, \"exit_code\": %d, \"signal\": %s, "
			      "\"limit\": %s, \"seconds\": %" PRId64 ".%03d, \"peak_memory\": %s, "
			      "\"error\": null}\n",
			      outcome->failed ? "false" : "true",
			      is_killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status), killed, limit,
			      ending->took_ms / 1000, (int)(ending->took_ms % 1000), peak);
	if (ce_write_all(json, text, (size_t)length) < 0)
		ce_say_here("error", "cannot write the file of --json", "");
}

void ce_outcome_report(int file, int json, const char *node, const struct ce_ending *ending)
{
	struct ce_outcome outcome;

	ce_outcome_read(file, &outcome);
	/* the command ended by itself after the limit was noted, before the container was killed for it */
	if (ce_is_limit(outcome.text) &&
	    !(WIFSIGNALED(ending->status) && WTERMSIG(ending->status) == SIGKILL))
		outcome.limit[0] = outcome.text[0] = '\0';
	if (outcome.text[0] != '\0')
		say(&outcome, node);
	if (json >= 0)
		write_json(json, &outcome, ending);
}
