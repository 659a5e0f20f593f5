/* The program that stands where the node launcher would; see fake_node.c for what it can do. */
#ifndef CE_TESTS_FAKE_NODE_H
#define CE_TESTS_FAKE_NODE_H

#include "harness.h"

/* A copy of it that every user may execute. The first call of a test must come before it changes its
 * identity. */
static inline const char *fake_node(void)
{
	static const char *copy;

	if (copy == NULL)
		copy = test_copy(TEST_NODE, test_directory(), "node");
	return copy;
}

#endif
