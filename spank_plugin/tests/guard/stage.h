/* A guard in the process of a test, which can run specifications. */
#ifndef CE_TESTS_GUARD_STAGE_H
#define CE_TESTS_GUARD_STAGE_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

#include "common/io.h"
#include "guard/guard_ops.h"
#include "harness.h"

static struct guard guard = GUARD_INIT;

/* Set up a guard as guard.c does before it runs operations. */
static inline void set_up_guard(void)
{
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	CHECK_INT(sigprocmask(SIG_BLOCK, &child, NULL), 0);
	guard.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	guard.log = ce_memory_file("log", "", 0);
	CHECK(guard.signals >= 0 && guard.log >= 0);
}

/* Run a specification; `size` counts the NULs in the text, the last one included. */
static inline int run(const char *specification, size_t size)
{
	/* on the heap and of exactly this size, so that a read beyond its end is noticed */
	char *text = calloc(1, size > 0 ? size : 1);

	CHECK(text != NULL);
	memcpy(text, specification, size);
	int rc = guard_run_operations(&guard, text, size);
	free(text);
	return rc;
}

#define RUN(text) run(text, sizeof(text))

#endif
