/*
 * Operations that are only known once the image's files are visible: one of our programs inspects them and
 * prints further operations, in the format of the specification. It runs as the user in the session's
 * namespaces, before there is a container.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io.h"
#include "guard.h"
#include "guard_ops.h"

enum { MAX_MORE = 16 * 1024 * 1024, MAX_NOTE = 60 * 1024 };

static int run_program(struct guard *guard, char **args, int output)
{
	CE_AUTO_FREE char *name = NULL;

	if (asprintf(&name, "'%s'", args[0]) < 0)
		return guard_fail(guard, "out of memory");
	return guard_run(guard, name, args, NULL, output);
}

int guard_op_more(struct guard *guard, char **args)
{
	errno = EINVAL;
	if (guard->in_more)
		return guard_fail(guard, "an operation that was added adds more");
	CE_AUTO_FD output = ce_memory_file("ce-more", "", 0);
	if (output < 0)
		return guard_fail(guard, "cannot make a memory file");
	if (run_program(guard, args, output) < 0)
		return -1;
	guard->more = ce_read_file_at(output, MAX_MORE, &guard->more_size);
	return guard->more != NULL ? 0 : guard_fail(guard, "cannot read what '%s' printed", args[0]);
}

int guard_op_note(struct guard *guard, char **args)
{
	CE_AUTO_FREE char *packet = NULL;
	size_t length = strlen(args[0]);

	errno = EMSGSIZE;
	if (length > MAX_NOTE)
		return guard_fail(guard, "a note of %zu bytes", length);
	if (asprintf(&packet, "%c%s", CE_REPORT_NOTE, args[0]) < 0)
		return guard_fail(guard, "out of memory");
	if (ce_send(guard->control, packet, length + 1, NULL, 0) < 0)
		return guard_fail(guard, "cannot report to the launcher");
	return 0;
}
