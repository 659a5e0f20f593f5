/* The program that replaces the node launcher in tests (fake_launcher.c). */
#ifndef CE_TESTS_FAKE_NODE_H
#define CE_TESTS_FAKE_NODE_H

#include "harness.h"

/* Return the path of a copy that every user may execute. A test calls this before it changes its identity. */
static inline const char *fake_launcher(void)
{
	static const char *copy;

	if (copy == NULL)
		copy = test_copy(test_built("fake_launcher"), test_directory(), "ce-guard");
	return copy;
}

#endif
