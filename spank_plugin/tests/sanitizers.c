/*
 * Linked into the plugin and its programs where they are built with SANITIZED=1, to be tested on a real
 * cluster (tests/sanitizers). The sanitizers write reports to files, because nobody reads what a guard or
 * slurmstepd prints.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "detect_leaks=0:verify_asan_link_order=0:log_path=" SANITIZERS_LOG "/report"

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

/* the options are compiled in, because the programs get an empty environment */
const char *__asan_default_options(void)
{
	return OPTIONS;
}

const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1:log_path=" SANITIZERS_LOG "/report";
}

/* Remove the sanitizers' library from LD_PRELOAD. The plugin is loaded into programs of Slurm that are not
 * built with sanitizers and are started with this library preloaded. What they start must not inherit it,
 * least of all in a container, which lacks it. */
static void __attribute__((constructor)) forget_preload(void)
{
	const char *preload = getenv("LD_PRELOAD");

	/* slurmd keeps it, for slurmstepd */
	if (strcmp(program_invocation_short_name, "slurmd") != 0 && preload != NULL &&
	    strstr(preload, "libasan") != NULL) {
		unsetenv("LD_PRELOAD");
		unsetenv("ASAN_OPTIONS");
	}
}

/* Write beyond an allocation if asked to, so that the tests can see that a fault would be found, also in a
 * program with the C library's memory. */
static void __attribute__((constructor)) overrun_if_asked_to(void)
{
	const char *length = getenv("CE_OVERRUN");
	/* volatile, so that the compiler does not notice the overrun */
	char *volatile memory = length != NULL ? malloc(1) : NULL;

	if (memory != NULL)
		memory[atoi(length)] = 0;
	free(memory);
}
