#define _GNU_SOURCE
#include "held.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beginnings of NAME=VALUE. Must match container_engine/base/variables.py. */
static const char *const choosing[] = {
	"LD_", "GCONV_PATH=", "GETCONF_DIR=", "GLIBC_TUNABLES=", "LOCPATH=", "MALLOC_", "NLSPATH=",
	"OPENSSL_", "PYTHON", "__PYVENV_LAUNCHER__=", "BASHOPTS=", "BASH_ENV=", "BASH_FUNC_", "ENV=",
	"SHELLOPTS=", "ZDOTDIR=", "CLASSPATH=", "JAVA_TOOL_OPTIONS=", "JDK_JAVA_OPTIONS=", "_JAVA_OPTIONS=",
	"LUA_", "NODE_OPTIONS=", "NODE_PATH=", "PERL5", "PERLLIB=", "RUBYLIB=", "RUBYOPT=", "TCLLIBPATH=",
};

/* On the heap; NULL for none. */
static char *other_path;

static int chooses_code(const char *entry)
{
	for (size_t i = 0; i < sizeof choosing / sizeof choosing[0]; i++) {
		if (strncmp(entry, choosing[i], strlen(choosing[i])) == 0)
			return 1;
	}
	return 0;
}

int ce_hold(char **environment)
{
	char **kept = environment;

	for (char **entry = environment; *entry != NULL; entry++) {
		*kept = *entry;
		if (chooses_code(*entry) && asprintf(kept, CE_HELD "%s", *entry) < 0)
			return -1;
		kept += **kept != '='; /* Python accepts no variable without a name */
	}
	*kept = NULL;
	return 0;
}

/* Take back the variable of an entry CE_HELD_NAME=VALUE. Return 0, or -1 without memory. */
static int take_back(const char *entry)
{
	const char *equals = strchr(entry, '=');
	char *held = equals != NULL ? strndup(entry, (size_t)(equals - entry)) : NULL;
	const char *name = held != NULL ? held + strlen(CE_HELD) : NULL;

	if (name == NULL)
		return -1;
	const char *now = strcmp(name, "PATH") == 0 ? getenv(name) : NULL;
	char *other = now != NULL ? strdup(now) : NULL;
	int rc = now != NULL && other == NULL ? -1 : setenv(name, equals + 1, 1);
	if (other != NULL) {
		free(other_path);
		other_path = other;
	}
	unsetenv(held);
	free(held);
	return rc;
}

int ce_take_back(void)
{
	/* each one that is taken back moves the others */
	for (char **entry = environ; entry != NULL && *entry != NULL;) {
		if (strncmp(*entry, CE_HELD, strlen(CE_HELD)) != 0)
			entry++;
		else if (take_back(*entry) < 0)
			return -1;
		else
			entry = environ;
	}
	return 0;
}

int ce_exchange_path(void)
{
	const char *now = getenv("PATH");
	char *kept = other_path != NULL && now != NULL ? strdup(now) : NULL;

	if (other_path == NULL)
		return 0;
	if (kept == NULL || setenv("PATH", other_path, 1) < 0) {
		free(kept);
		return -1;
	}
	free(other_path);
	other_path = kept;
	return 0;
}

void ce_forget_path(void)
{
	free(other_path);
	other_path = NULL;
}
