/*
 * A memo: a file in which Python has stored results for a program in C, as fields that end with NUL
 * (container_engine/base/private_files.py, memo_of). It belongs to the user alone; if anything about it is
 * doubtful, the program starts Python instead.
 */
#ifndef CE_MEMO_FILE_H
#define CE_MEMO_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fields.h"

enum { CE_MEMO_MOST = 64 * 1024 * 1024 };

/* Return zlib's CRC-32 of the data. `before` is the CRC of the data before it, 0 at the beginning. */
uint32_t ce_crc(uint32_t before, const void *data, size_t size);

/* Begin to read the fields of a memo, which consists of `magic`, a checksum of the rest as a field, and the
 * rest. Return 0, or -1 if it begins otherwise, or if the checksum shows that the disk has changed it. */
int ce_open_fields(const char *text, size_t size, const char *magic, struct ce_fields *fields);

/* Open a directory, relative to the descriptor `at`. Return -1 unless it belongs to `uid`, is not a symlink
 * and has none of the mode bits `others`. */
int ce_open_own(int at, const char *path, uid_t uid, mode_t others);

/* Return the content of a regular file, relative to the descriptor `at`, on the heap with a NUL after it; the
 * caller frees it. Return NULL if it cannot be read, is a symlink, does not belong to `uid`, has any mode
 * bits for group or others, or is longer than `limit`. */
char *ce_read_own(int at, const char *path, uid_t uid, size_t limit, size_t *size);

#endif
