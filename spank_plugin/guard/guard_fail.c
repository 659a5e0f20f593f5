#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#include "common/image_gone.h"
#include "guard.h"

int guard_fail(struct guard *guard, const char *format, ...)
{
	va_list args;

	if (guard->err.message != NULL)
		return -1;
	guard->stage_errno = errno;
	va_start(args, format);
	if (vasprintf(&guard->err.message, format, args) < 0)
		guard->err.message = NULL;
	va_end(args);
	return -1;
}

int guard_fail_ended(struct guard *guard, const char *what, int status)
{
	errno = 0;
	if (WIFSIGNALED(status))
		return guard_fail(guard, "%s was killed by signal %d", what, WTERMSIG(status));
	if (WEXITSTATUS(status) == GUARD_NOT_STARTED) {
		guard->stage = "program";
		return guard_fail(guard, "%s cannot be started", what);
	}
	return guard_fail(guard, "%s ended with exit code %d", what, WEXITSTATUS(status));
}

int guard_image_gone(struct guard *guard, const char *image)
{
	errno = 0;
	return guard_fail(guard, CE_CAUSE_GONE "'%s' was removed, replaced or overwritten",
			  image != NULL ? image : "it");
}
