/*
 * A memo: a file in which Python has stored results for a program in C, as fields that end with NUL
 * (container_engine/private_files.py, memo_of). It belongs to the user alone; if anything about it is
 * doubtful, the program starts Python instead.
 */
#ifndef CE_MEMO_FILE_H
#define CE_MEMO_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CE_MEMO_MOST = 64 * 1024 * 1024 };

/* A place in a memo, from which fields are taken. */
struct ce_fields {
	const char *next, *end;
	int bad; /* set when a field that was asked for is missing, or is not a number */
};

/* Return zlib's CRC-32 of the data. `before` is the CRC of the data before it, 0 at the beginning. */
uint32_t ce_crc(uint32_t before, const void *data, size_t size);

/* Begin to read the fields of a memo, which consists of `magic`, a checksum of the rest as a field, and the
 * rest. Return 0, or -1 if it begins otherwise, or if the checksum shows that the disk has changed it. */
int ce_open_fields(const char *text, size_t size, const char *magic, struct ce_fields *fields);

/* Return the next field; "" if there is none, and set `bad`. */
const char *ce_take(struct ce_fields *fields);

/* Return the next field as a number; 0 if it has other characters than digits, or more than 18, and set
 * `bad`. */
long long ce_take_number(struct ce_fields *fields);

/* Return the next bytes, which may include NULs, and their number in *size. The field before them has this
 * number, and a NUL follows them. If that is not so, return "" with *size 0 and set `bad`. */
const char *ce_take_bytes(struct ce_fields *fields, size_t *size);

/* Return the beginning of a table and move past it. A table is the number of its entries, then `width` fields
 * for each. */
struct ce_fields ce_take_table(struct ce_fields *fields, int width);

/* Take the next field and return whether it is `expected`. */
int ce_is_next(struct ce_fields *fields, const char *expected);

/* Open a directory, relative to the descriptor `at`. Return -1 unless it belongs to `uid`, is not a symlink
 * and has none of the mode bits `others`. */
int ce_open_own(int at, const char *path, uid_t uid, mode_t others);

/* Return the content of a regular file, relative to the descriptor `at`, on the heap with a NUL after it; the
 * caller frees it. Return NULL if it cannot be read, is a symlink, does not belong to `uid`, has any mode
 * bits for group or others, or is longer than `limit`. */
char *ce_read_own(int at, const char *path, uid_t uid, size_t limit, size_t *size);

#endif
