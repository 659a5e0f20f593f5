#define _GNU_SOURCE
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "generated/help.h"

static int set_message(struct ce_error *err, int exit_code, const char *format, va_list args)
{
	if (err->message != NULL)
		return -1;
	err->exit_code = exit_code;
	if (vasprintf(&err->message, format, args) < 0)
		err->message = NULL;
	return -1;
}

int ce_fail(struct ce_error *err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int rc = set_message(err, CE_EXIT_ENGINE, format, args);
	va_end(args);
	return rc;
}

int ce_fail_code(struct ce_error *err, int exit_code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int rc = set_message(err, exit_code, format, args);
	va_end(args);
	return rc;
}

int ce_fail_below(struct ce_error *err, const char *below, const char *format, ...)
{
	va_list args;

	if (err->message == NULL)
		err->below = below;
	va_start(args, format);
	int rc = set_message(err, CE_EXIT_ENGINE, format, args);
	va_end(args);
	return rc;
}

const char *ce_start_help(int number)
{
	/* with ETOOMANYREFS, descriptors that are on their way through sockets */
	static const int limits[] = { EMFILE, ENFILE, EAGAIN, ENOMEM, ETOOMANYREFS };
	int is_limit = 0;

	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		is_limit |= number == limits[i];
	return is_limit ? CE_HELP_LIMIT_REACHED : CE_HELP_PLUGIN_CONFIGURATION;
}

const char *ce_error_below(const struct ce_error *err, const char *otherwise)
{
	return err->below != NULL ? err->below : otherwise;
}

const char *ce_error_text(const struct ce_error *err)
{
	return err->message != NULL ? err->message : "out of memory while reporting an error";
}

void ce_error_clear(struct ce_error *err)
{
	free(err->message);
	*err = (struct ce_error)CE_ERROR_INIT;
}
