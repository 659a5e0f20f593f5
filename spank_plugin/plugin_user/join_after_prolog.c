#define _GNU_SOURCE
#include "join_after_prolog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/io.h"
#include "common/join.h"

/* Keep the descriptor open across the execve, and take it from its variable, so that nobody closes it before.
 * Return its number, or -1. */
static int keep(int *fd)
{
	int number = *fd;

	*fd = -1;
	return number >= 0 && fcntl(number, F_SETFD, 0) == 0 ? number : -1;
}

/* Pass on the directory that records printed messages. Without it, ce-join prints messages that other nodes
 * have already printed. */
static void pass_printed_messages(int marks, const char *planned, const struct ce_variables *variables)
{
	CE_AUTO_FREE char *text = NULL;
	int kept = marks >= 0 ? fcntl(marks, F_DUPFD, 3) : -1;

	if (kept >= 0 && asprintf(&text, "%d %s", kept, planned) >= 0)
		(void)variables->set(variables->context, CE_JOIN_PRINTED_MESSAGES, text);
}

int ce_after_prolog_arrange(struct ce_container *container, const char *command, const char *planned,
			    const struct ce_variables *variables, struct ce_error *err)
{
	int user_ns = keep(&container->user_ns), mount_ns = keep(&container->mount_ns);
	int environment = keep(&container->environment), wanted = container->profile >= 0;
	int profile = keep(&container->profile), *unshared = container->unshared;
	CE_AUTO_FREE char *text = NULL;

	if (user_ns < 0 || mount_ns < 0 || environment < 0 || (wanted && profile < 0) ||
	    asprintf(&text, "%d %d %d %d %d %d %d %d %d %s", user_ns, mount_ns, environment, profile,
		     container->may_gain, keep(&unshared[0]), keep(&unshared[1]), keep(&unshared[2]),
		     keep(&unshared[3]), container->workdir) < 0 ||
	    variables->set(variables->context, CE_JOIN_CONTAINER, text) < 0 ||
	    variables->set(variables->context, CE_JOIN_COMMAND, command) < 0)
		return ce_fail(err, "cannot prepare the task for its container: %s",
			       strerror(errno));
	pass_printed_messages(container->marks, planned, variables);
	return 0;
}
