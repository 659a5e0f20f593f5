#define _GNU_SOURCE
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CE_DEFAULT_PREFIX
#define CE_DEFAULT_PREFIX "/opt/container-engine"
#endif

#define LIBEXEC "/libexec/container-engine/"

static int read_timeout(const char *text, int *seconds, struct ce_error *err)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < 1 || value > 86400)
		return ce_fail(err, "plugstack.conf: start_timeout=%s: must be 1 to 86400 seconds",
			       text);
	*seconds = (int)value;
	return 0;
}

static int read_audit(const char *place, struct ce_config *config, struct ce_error *err)
{
	if (place[0] != '/' && strcmp(place, "syslog") != 0)
		return ce_fail(err, "plugstack.conf: audit=%s: must be 'syslog' or an absolute path", place);
	free(config->audit);
	config->audit = strdup(place);
	return config->audit != NULL ? 0 : ce_fail(err, "out of memory");
}

static int read_seccomp(const char *place, struct ce_config *config, struct ce_error *err)
{
	if (place[0] != '/')
		return ce_fail(err, "plugstack.conf: seccomp=%s: must be an absolute path", place);
	free(config->seccomp);
	config->seccomp = strdup(place);
	return config->seccomp != NULL ? 0 : ce_fail(err, "out of memory");
}

/* Return the path of a program of the engine, on the heap; NULL without memory. */
static char *program_of(const char *prefix, const char *name)
{
	char *path = NULL;

	return asprintf(&path, "%s" LIBEXEC "%s", prefix, name) < 0 ? NULL : path;
}

int ce_config_read(struct ce_config *config, int argc, char **argv, struct ce_error *err)
{
	const char *prefix = CE_DEFAULT_PREFIX;

	config->start_timeout_s = 300;
	for (int i = 0; i < argc; i++) {
		if (strncmp(argv[i], "prefix=", 7) == 0)
			prefix = argv[i] + 7;
		else if (strncmp(argv[i], "start_timeout=", 14) == 0) {
			if (read_timeout(argv[i] + 14, &config->start_timeout_s, err) < 0)
				return -1;
		} else if (strncmp(argv[i], "audit=", 6) == 0) {
			if (read_audit(argv[i] + 6, config, err) < 0)
				return -1;
		} else if (strncmp(argv[i], "seccomp=", 8) == 0) {
			if (read_seccomp(argv[i] + 8, config, err) < 0)
				return -1;
		} else if (strcmp(argv[i], "no_new_privs=on") == 0)
			config->may_gain = 0;
		else if (strcmp(argv[i], "no_new_privs=off") == 0)
			config->may_gain = 1;
		else if (strcmp(argv[i], "pyxis=on") == 0)
			config->leaves_pyxis = 0;
		else if (strcmp(argv[i], "pyxis=off") == 0)
			config->leaves_pyxis = 1;
		else if (strncmp(argv[i], "no_new_privs=", 13) == 0 || strncmp(argv[i], "pyxis=", 6) == 0)
			return ce_fail(err, "plugstack.conf: %s: must be on or off", argv[i]);
		else
			return ce_fail(err, "plugstack.conf: unknown argument '%s'", argv[i]);
	}
	if (prefix[0] != '/')
		return ce_fail(err, "plugstack.conf: prefix=%s: must be an absolute path", prefix);
	config->prefix = strdup(prefix);
	config->plan = program_of(prefix, "plan");
	config->guard = program_of(prefix, "ce-guard");
	config->join = program_of(prefix, "ce-join");
	config->prolog = program_of(prefix, "ce-prolog");
	return config->prefix != NULL && config->plan != NULL && config->guard != NULL &&
			       config->join != NULL && config->prolog != NULL
		       ? 0
		       : ce_fail(err, "out of memory");
}

void ce_config_clear(struct ce_config *config)
{
	free(config->prefix);
	free(config->plan);
	free(config->guard);
	free(config->join);
	free(config->prolog);
	free(config->audit);
	free(config->seccomp);
	ce_error_clear(&config->error);
	*config = (struct ce_config){ .error = CE_ERROR_INIT };
}
