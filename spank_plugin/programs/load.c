/*
 * ce-load: runs a program of a bundle (packaging/bundle) with the bundle's own loader and libraries, so that
 * it runs on a system with another C library. It is static. Its name selects the program, and its location
 * gives the prefix: a bundle can be anywhere, while a loader named inside of a program could not.
 *
 * Nothing that it sets reaches the children of the program: an option of the loader names the libraries, not
 * a variable. It removes variables for the loader, which mean libraries for the system's own C library.
 * Modules of the system that look up users (nsswitch.conf) are still found, by the system's ld.so.cache.
 *
 * A name below libexec/container-engine/python is a Python program. Runs as its caller. Exit code: 125 for a
 * failure of its own, else that of the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "common/error.h"
#include "common/exec_check.h"
#include "common/io.h"
#include "common/program.h"

enum { MAX_FIRST = 8, MAX_PLACE = PATH_MAX + 128 };

static int fail(const char *what, const char *why)
{
	dprintf(2, "ce: error: %s: %s\n", what, why);
	return CE_EXIT_ENGINE;
}

/* Return the prefix, on the heap. The guard runs crun from a copy in memory, which has no path: then
 * it is in the command's name. Return NULL with errno. */
static char *find_prefix(const char *command)
{
	const char *tail = NULL;
	char *prefix = ce_find_prefix();

	if (prefix != NULL || command[0] != '/')
		return prefix;
	for (const char *next = command; (next = strstr(next, CE_LIBEXEC)) != NULL; next++)
		tail = next;
	return tail != NULL ? strndup(command, (size_t)(tail - command)) : NULL;
}

/* Remove what tells the loader of a program which other files to load. */
static void forget_loaders_variables(void)
{
	for (char **entry = environ; *entry != NULL;) {
		char name[64] = "";
		size_t length = strcspn(*entry, "=");

		if (strncmp(*entry, "LD_", strlen("LD_")) != 0 || length >= sizeof name) {
			entry++;
			continue;
		}
		memcpy(name, *entry, length);
		unsetenv(name);
	}
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	const char *path = (const char *)getauxval(AT_EXECFN);
	const char *name = ce_base_name(path != NULL ? path : "ce-load");
	CE_AUTO_FREE char *prefix = find_prefix(argc > 0 ? argv[0] : "");
	char loader[MAX_PLACE], libraries[MAX_PLACE], program[MAX_PLACE], script[MAX_PLACE];
	char python[MAX_PLACE], why[CE_WHY_SIZE];

	if (prefix == NULL)
		return fail(name, "is not in a bundle of the engine");
	if (strpbrk(prefix, ":;$") != NULL)
		return fail(prefix, "unpack the bundle in a path without ':', ';' and '$'");
	snprintf(script, sizeof script, "%s" CE_LIBEXEC "python/%s", prefix, name);
	snprintf(python, sizeof python, "%s/libexec/python3", prefix);
	int is_script = access(script, F_OK) == 0;
	snprintf(loader, sizeof loader, "%s/lib/bundle/load/%s", prefix, name);
	snprintf(libraries, sizeof libraries, "%s/lib/bundle", prefix);
	snprintf(program, sizeof program, "%s/lib/bundle/bin/%s", prefix, is_script ? "python3" : name);

	CE_AUTO_FREE const char **words = calloc((size_t)argc + MAX_FIRST + 1, sizeof *words);
	if (words == NULL)
		return fail(name, "out of memory");
	int count = 0, is_python = is_script || strcmp(name, "python3") == 0;
	words[count++] = loader;
	words[count++] = "--library-path";
	words[count++] = libraries;
	words[count++] = "--argv0";
	words[count++] = is_python ? python : argc > 0 ? argv[0] : program;
	words[count++] = program;
	if (is_script) {
		words[count++] = "-ISE";
		words[count++] = script;
	}
	for (int i = 1; i < argc; i++)
		words[count++] = argv[i];
	forget_loaders_variables();
	execv(loader, (char *const *)words);
	ce_not_started(loader, errno, why);
	return fail(loader, why);
}
