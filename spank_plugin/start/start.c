/*
 * ce-start: stands in for `ce` and the planner until Python runs. The user's environment affects Python
 * itself: LD_PRELOAD and LD_LIBRARY_PATH decide which libexpat or libz it loads, before any of its own
 * options can prevent that, PYTHONEXECUTABLE where its standard library is, whatever -I says, GCONV_PATH what
 * converts the text of its arguments, and OPENSSL_CONF what computes checksums. This program is static, so it
 * is not affected. It holds these variables (common/held.h), so that neither the loader nor Python sees them,
 * and the Python program restores them once it runs: they belong to the job's environment
 * (container_engine/base/variables.py).
 *
 * Its name selects what to start: `plan`, `plan-anew`, `enroot`, `apptainer`, `singularity` or
 * `ce-system-install`; anything else is `ce`. Its location gives the prefix. As `plan` it prints a cached
 * plan that is still right (plan_answer.c); without one it becomes `plan-anew`. Python of the same version
 * asks with `--cached=VERSION` for a cached plan alone (container_engine/submit/plan_output.py). Runs as
 * the user. Exit code: 125 for a failure of the engine, 2 for a wrong command line, 1 if no plan is cached
 * and Python has asked.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "common/error.h"
#include "common/exec_check.h"
#include "common/held.h"
#include "common/io.h"
#include "common/program.h"
#include "plan_answer.h"

enum { EXIT_NONE = 1, EXIT_USAGE = 2, MAX_OPTIONS = 3, MAX_FIRST = 2 };

#define CACHED "--cached=" CE_VERSION

static const struct start {
	const char *name, *script;
	const char *options[MAX_OPTIONS + 1];
} starts[] = {
	/* the plan's encoding does not depend on the locale */
	{ "plan-anew", "ce", { "-I", "-X", "utf8" } },
	{ "enroot", "enroot", { "-I" } },
	{ "apptainer", "apptainer", { "-I" } },
	{ "singularity", "apptainer", { "-I" } },
	{ "ce-system-install", "system_install", { "-I" } },
	{ "ce", "ce", { "-I" } },
};
enum { START_COUNT = sizeof starts / sizeof starts[0] };

static int fail(const char *what, const char *why)
{
	dprintf(2, "ce: error: %s: %s\n", what, why);
	return CE_EXIT_ENGINE;
}

static const struct start *meant(const char *path)
{
	for (int i = 0; path != NULL && i < START_COUNT; i++) {
		if (ce_is_called(path, starts[i].name))
			return &starts[i];
	}
	return &starts[START_COUNT - 1];
}

/* Become Python with the script, and `first` before the words of our own command line. On failure return the
 * exit code, after a message. */
static int become(const struct start *start, const char *prefix, const char *const first[MAX_FIRST + 1],
		  char **rest)
{
	char python[PATH_MAX + 32], script[PATH_MAX + 64], why[CE_WHY_SIZE];
	int argc = 0, count = 0;
	sigset_t interrupt;

	while (rest[argc] != NULL)
		argc++;
	snprintf(python, sizeof python, "%s/libexec/python3", prefix);
	snprintf(script, sizeof script, "%s/libexec/container-engine/python/%s", prefix,
		 start->script);
	CE_AUTO_FREE const char **words = calloc((size_t)argc + MAX_OPTIONS + MAX_FIRST + 3, sizeof *words);
	if (words == NULL || ce_hold(environ) < 0)
		return fail("environment", "out of memory");
	words[count++] = python;
	for (int i = 0; start->options[i] != NULL; i++)
		words[count++] = start->options[i];
	words[count++] = script;
	for (int i = 0; first[i] != NULL; i++)
		words[count++] = first[i];
	for (int i = 0; i < argc; i++)
		words[count++] = rest[i];
	/* Python lets it through once its imports are over: before, it would report where it was interrupted
	 * (container_engine/printing/interrupts.py) */
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	sigprocmask(SIG_BLOCK, &interrupt, NULL);
	execv(python, (char *const *)words);
	ce_not_started(python, errno, why);
	return fail(python, why);
}

/* ---- as `plan` --------------------------------------------------------------------------------- */

/* Its command line: [--for CALLER | --cached=VERSION] [OPTION ...] [--] [NAME] */
struct asked {
	char *caller; /* NULL without --for */
	int is_python; /* whether Python asks, which makes a new plan itself */
	char **options; /* on the heap, as is `words` */
	char *name;	/* NULL: the options name the image */
	char **words;	/* the command line for Python: the same, with "--" */
};

static int is_option(const char *word)
{
	return word != NULL && (strncmp(word, "--container-", strlen("--container-")) == 0 ||
				strncmp(word, "--no-container-", strlen("--no-container-")) == 0);
}

static int parse(int argc, char **argv, struct asked *asked)
{
	static char dashes[] = "--";
	int has_caller = argc > 2 && strcmp(argv[1], "--for") == 0, options = 0;
	int is_python = argc > 1 && strcmp(argv[1], CACHED) == 0;
	char **rest = argv + 1 + 2 * has_caller + is_python, **word;

	*asked = (struct asked){ .is_python = is_python,
				 .options = calloc((size_t)argc + 1, sizeof *asked->options),
				 .words = calloc((size_t)argc + 3, sizeof *asked->words) };
	if (asked->options == NULL || asked->words == NULL)
		return fail("environment", "out of memory");
	word = asked->words;
	if (has_caller) {
		asked->caller = argv[2];
		*word++ = argv[1];
		*word++ = argv[2];
	}
	for (; is_option(*rest); rest++)
		*word++ = asked->options[options++] = *rest;
	rest += *rest != NULL && strcmp(*rest, dashes) == 0;
	*word++ = dashes;
	*word = asked->name = *rest;
	if ((*rest == NULL && options > 0) || (*rest != NULL && rest[1] == NULL))
		return 0;
	dprintf(2, "ce: error: usage: plan [--for srun|salloc|sbatch] [OPTION ...] NAME\n");
	return EXIT_USAGE;
}

/* Print the notices on stderr and the plan on stdout, after the beginning of the planner's output where --for
 * asks for that. For Python print all three on stdout, with a NUL after each. Return the exit code. */
static int print(const struct asked *asked, const struct ce_plan *made)
{
	CE_AUTO_FREE char *text = ce_plan_text(made);
	size_t head = asked->caller != NULL || asked->is_python ? strlen(made->head) : 0;
	size_t nul = asked->is_python;

	if (text == NULL)
		return fail("the plan's secret", strerror(errno));
	if (ce_write_all(nul ? 1 : 2, made->notices, strlen(made->notices) + nul) < 0 ||
	    ce_write_all(1, made->head, head + nul) < 0 || ce_write_all(1, text, strlen(text) + nul) < 0)
		return fail("cannot print the plan", strerror(errno));
	return 0;
}

static int plan(const char *prefix, int argc, char **argv)
{
	static const char *const first[MAX_FIRST + 1] = { "plan", "--json", NULL };
	struct asked asked;
	struct ce_answer answer;
	struct ce_plan made;
	int rc = parse(argc, argv, &asked);

	const struct ce_request request = { asked.name, prefix, asked.options, environ };
	if (rc == 0 && ce_plan_recall(&request, &answer, &made) == 0) {
		rc = print(&asked, &made);
		free(answer.text);
	} else if (rc == 0 && asked.is_python) {
		rc = EXIT_NONE;
	} else if (rc == 0) {
		rc = become(meant("plan-anew"), prefix, first, asked.words);
	}
	free(asked.options);
	free(asked.words);
	return rc;
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	static const char *const none[MAX_FIRST + 1] = { NULL };
	const char *path = (const char *)getauxval(AT_EXECFN);
	CE_AUTO_FREE char *prefix = ce_find_prefix();

	if (prefix == NULL)
		return fail("/proc/self/exe",
			    errno == EINVAL ? "is not where `make install` put it" : strerror(errno));
	if (path != NULL && ce_is_called(path, "plan"))
		return plan(prefix, argc, argv);
	return become(meant(path), prefix, none, argc > 0 ? argv + 1 : argv);
}
