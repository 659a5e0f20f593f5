/*
 * Linked into the plugin and its programs where they are built with SANITIZED=1, to be tried on a real
 * cluster (tests/sanitizers). What the sanitizers find goes to files, because nobody hears what a guard
 * or slurmstepd prints.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "detect_leaks=0:verify_asan_link_order=0:log_path=" SANITIZERS_LOG "/report"

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

/* the programs get an empty environment */
const char *__asan_default_options(void)
{
	return OPTIONS;
}

const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1:log_path=" SANITIZERS_LOG "/report";
}

/* The plugin is loaded into programs of Slurm that know nothing of sanitizers and are started with the
 * library preloaded. What they start must not inherit it, least of all in a container, which lacks it. */
static void __attribute__((constructor)) forget_preload(void)
{
	const char *preload = getenv("LD_PRELOAD");

	/* slurmd starts slurmstepd with it */
	if (strcmp(program_invocation_short_name, "slurmd") != 0 && preload != NULL &&
	    strstr(preload, "libasan") != NULL) {
		unsetenv("LD_PRELOAD");
		unsetenv("ASAN_OPTIONS");
	}
}

/* So that the tests can see that a fault would be found, in a program with the C library's memory, too. */
static void __attribute__((constructor)) overrun_if_asked_to(void)
{
	const char *length = getenv("CE_OVERRUN");
	/* volatile: the compiler is not to see it */
	char *volatile memory = length != NULL ? malloc(1) : NULL;

	if (memory != NULL)
		memory[atoi(length)] = 0;
	free(memory);
}
