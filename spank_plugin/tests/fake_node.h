/* The program that takes the node launcher's place in tests; see fake_node.c for its abilities. */
#ifndef CE_TESTS_FAKE_NODE_H
#define CE_TESTS_FAKE_NODE_H

#include "harness.h"

/* Return the path of a copy that every user may execute. In a test, call this before the identity changes. */
static inline const char *fake_node(void)
{
	static const char *copy;

	if (copy == NULL)
		copy = test_copy(TEST_NODE, test_directory(), "node");
	return copy;
}

#endif
