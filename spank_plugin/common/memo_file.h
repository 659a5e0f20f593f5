/*
 * A memo: a file in which Python has stored results for a program in C, as fields that end with NUL
 * (container_engine/base/private_files.py, memo_of). It belongs to the user alone; if anything about it is
 * doubtful, the program starts Python instead.
 */
#ifndef CE_MEMO_FILE_H
#define CE_MEMO_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "fields.h"

enum { CE_MEMO_MOST = 64 * 1024 * 1024 };

/* Return zlib's CRC-32 of the data. `before` is the CRC of the data before it, 0 at the beginning. */
uint32_t ce_crc(uint32_t before, const void *data, size_t size);

/* Begin to read the fields of a memo, which consists of `magic`, a checksum of the rest as a field, and the
 * rest. Return 0, or -1 if it begins otherwise, or if the checksum shows that the disk has changed it. */
int ce_open_fields(const char *text, size_t size, const char *magic, struct ce_fields *fields);

#endif
