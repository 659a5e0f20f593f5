/* Memos as Python writes them, for the tests and for random input. */
#ifndef CE_TESTS_MEMO_TEXT_H
#define CE_TESTS_MEMO_TEXT_H

#include <stddef.h>

/* Return a memo of these fields with the checksum that they have, and a NUL after it, on the heap; its size in *whole. */
char *memo_text(const char *magic, const char *fields, size_t size, size_t *whole);

#endif
