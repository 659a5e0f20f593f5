/* Makes memos as Python writes them, for tests and for random input. */
#ifndef CE_TESTS_MEMO_TEXT_H
#define CE_TESTS_MEMO_TEXT_H

#include <stddef.h>

/* Return a memo of these fields, with their checksum, and a NUL after it, on the heap; its size is in
 * *whole. */
char *memo_text(const char *magic, const char *fields, size_t size, size_t *whole);

#endif
