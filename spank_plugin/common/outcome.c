#define _GNU_SOURCE
#include "outcome.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io.h"
#include "say.h"

enum { END_MS = 100 };

void ce_outcome_read(int file, struct ce_outcome *outcome)
{
	memset(outcome, 0, sizeof *outcome);
	if (file >= 0 && pread(file, outcome, sizeof *outcome, 0) < 0)
		memset(outcome, 0, sizeof *outcome);
	outcome->limit[sizeof outcome->limit - 1] = '\0';
	outcome->text[sizeof outcome->text - 1] = '\0';
	outcome->failed[sizeof outcome->failed - 1] = '\0';
}

void ce_outcome_failed(int file, const char *why)
{
	struct ce_outcome outcome = { .failed = "" };

	snprintf(outcome.failed, sizeof outcome.failed, "%s", why);
	if (file >= 0 && pwrite(file, outcome.failed, sizeof outcome.failed,
				offsetof(struct ce_outcome, failed)) < 0)
		return;
}

/* Processes were refused, and the container has not ended. */
static int is_warning(const struct ce_outcome *outcome)
{
	return outcome->limit[0] != '\0' && !ce_is_limit(outcome->text);
}

static void say(const struct ce_outcome *outcome, const struct ce_whose *whose)
{
	const char *kind = is_warning(outcome) ? "warning" : "error";
	const char *below = is_warning(outcome) ? "" : ce_end_help(outcome->text);
	char text[sizeof outcome->text + 32];

	if (whose->node == NULL) {
		ce_say_here(kind, outcome->text, below);
		return;
	}
	snprintf(text, sizeof text, "task %s: %s", whose->task, outcome->text);
	if (is_warning(outcome))
		ce_say(whose->node, kind, text);
	else
		ce_say_error(whose->node, text,
			     ce_claim_message(whose->marks, whose->planned, text) ? below : "");
}

/* Write the cause of an end that is no limit, as JSON: what would need an escape becomes a question mark. */
static void write_cause(const struct ce_outcome *outcome, char *text, size_t size)
{
	const char *cause = outcome->failed[0] != '\0' ? outcome->failed : outcome->text;

	if (cause[0] == '\0' || (cause == outcome->text && outcome->limit[0] != '\0')) {
		snprintf(text, size, "null");
		return;
	}
	snprintf(text, size, "\"%s\"", cause);
	for (char *c = text + 1; c[1] != '\0'; c++) {
		if (*c == '"' || *c == '\\' || (signed char)*c < ' ')
			*c = '?';
	}
}

static void write_json(int json, const struct ce_outcome *outcome, const struct ce_ending *ending)
{
	char killed[16] = "null", limit[16] = "null", peak[32] = "null", text[1024];
	char cause[sizeof outcome->text + 3];
	int status = ending->status;
	int is_killed = WIFSIGNALED(status);

	if (is_killed)
		snprintf(killed, sizeof killed, "%d", WTERMSIG(status));
	if (outcome->limit[0] != '\0')
		snprintf(limit, sizeof limit, "\"%s\"", outcome->limit);
	if (outcome->is_watched)
		snprintf(peak, sizeof peak, "%" PRIu64,
			 outcome->peak > ending->largest ? outcome->peak : ending->largest);
	write_cause(outcome, cause, sizeof cause);
	int length = snprintf(text, sizeof text,
			      "{\"version\": 1, \"started\": %s, \"exit_code\": %d, \"signal\": %s, "
			      "\"limit\": %s, \"seconds\": %" PRId64 ".%03d, \"peak_memory\": %s, "
			      "\"error\": %s}\n",
			      outcome->failed[0] != '\0' ? "false" : "true",
			      is_killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status), killed, limit,
			      ending->took_ms / 1000, (int)(ending->took_ms % 1000), peak, cause);
	if (ce_write_all(json, text, (size_t)length) < 0)
		ce_say_here("error", "cannot write the file of --json", "");
}

/* Return whether the guard has ended, which it does after the command. Its end may be seen a moment after
 * that of a command that is killed with it, or by SIGBUS without its image. */
static int has_ended(int guard, int is_signalled)
{
	return guard >= 0 && ce_wait_readable(guard, ce_now_ms() + (is_signalled ? END_MS : 0));
}

void ce_outcome_report(int file, int json, int guard, const struct ce_whose *whose,
		       const struct ce_ending *ending)
{
	struct ce_outcome outcome;

	int is_killed = WIFSIGNALED(ending->status) && WTERMSIG(ending->status) == SIGKILL;
	int is_alone = has_ended(guard, WIFSIGNALED(ending->status));
	/* the guard notes the cause before it ends */
	ce_outcome_read(file, &outcome);
	if (is_alone && (outcome.text[0] == '\0' || is_warning(&outcome))) {
		outcome.limit[0] = '\0';
		snprintf(outcome.text, sizeof outcome.text, "%s", CE_CAUSE_KILLED);
	}
	/* the command ended by itself after the cause was noted, before the container was killed for it */
	if (!is_warning(&outcome) && (ce_is_limit(outcome.text) ? !is_killed : ending->status == 0))
		outcome.limit[0] = outcome.text[0] = '\0';
	if (outcome.text[0] != '\0')
		say(&outcome, whose);
	if (json >= 0)
		write_json(json, &outcome, ending);
}
