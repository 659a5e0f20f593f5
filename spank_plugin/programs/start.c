/*
 * ce-start: stands in for `ce` and the planner until Python runs. The user's environment affects Python
 * itself: LD_PRELOAD and LD_LIBRARY_PATH decide which libexpat or libz it loads, before any of its own
 * options can prevent that. This program is static, so it is not affected. It renames these variables, so
 * that the loader ignores them, and the Python program restores them once it runs: they belong to the job's
 * environment (container_engine/loader_env.py).
 *
 * Its name selects what to start: `plan`, `plan-anew` and `enroot`; anything else is `ce`. Its location gives the
 * prefix. Runs as the user. Exit code: 125 ours.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { EXIT_ENGINE = 125, MAX_OPTIONS = 3 };

#define HELD "CE_HELD_"
#define PLACE "/libexec/container-engine/ce-start"

static const struct start {
	const char *name, *script;
	const char *options[MAX_OPTIONS + 1];
} starts[] = {
	{ "plan", "plan", { "-ISE" } },
	/* the plan's encoding does not depend on the locale */
	{ "plan-anew", "ce", { "-I", "-X", "utf8" } },
	{ "enroot", "enroot", { "-I" } },
	{ "ce", "ce", { "-I" } },
};
enum { START_COUNT = sizeof starts / sizeof starts[0] };

static int fail(const char *what, const char *why)
{
	dprintf(2, "ce: error: %s: %s\n", what, why);
	return EXIT_ENGINE;
}

static const struct start *meant(const char *path)
{
	const char *slash = path != NULL ? strrchr(path, '/') : NULL;
	const char *name = slash != NULL ? slash + 1 : path;

	for (int i = 0; name != NULL && i < START_COUNT; i++) {
		if (strcmp(starts[i].name, name) == 0)
			return &starts[i];
	}
	return &starts[START_COUNT - 1];
}

/* Rename each variable NAME of the loader to CE_HELD_NAME; keep all others. */
static int hold(char **environment)
{
	for (char **entry = environment; *entry != NULL; entry++) {
		if (strncmp(*entry, "LD_", 3) == 0 && asprintf(entry, HELD "%s", *entry) < 0)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	char prefix[PATH_MAX], python[PATH_MAX + 32], script[PATH_MAX + 64];
	const struct start *start = meant((const char *)getauxval(AT_EXECFN));
	ssize_t length = readlink("/proc/self/exe", prefix, sizeof prefix - 1);

	if (length < 0)
		return fail("/proc/self/exe", strerror(errno));
	prefix[length] = '\0';
	size_t tail = strlen(PLACE);
	if ((size_t)length <= tail || strcmp(prefix + length - tail, PLACE) != 0)
		return fail(prefix, "is not where `make install` put it");
	prefix[(size_t)length - tail] = '\0';
	snprintf(python, sizeof python, "%s/libexec/python3", prefix);
	snprintf(script, sizeof script, "%s/libexec/container-engine/python/%s", prefix,
		 start->script);

	const char **words = calloc((size_t)argc + MAX_OPTIONS + 3, sizeof *words);
	if (words == NULL || hold(environ) < 0)
		return fail("environment", "out of memory");
	int count = 0;
	words[count++] = python;
	for (int i = 0; start->options[i] != NULL; i++)
		words[count++] = start->options[i];
	words[count++] = script;
	for (int i = 1; i < argc; i++)
		words[count++] = argv[i];
	execv(python, (char *const *)words);
	return fail(python, strerror(errno));
}
