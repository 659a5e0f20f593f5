/*
 * A file in which Python has remembered something for a program in C: fields that end with NUL
 * (container_engine/private_files.py, memo_of). It belongs to the user alone, and for every doubt about it the program
 * starts Python.
 */
#ifndef CE_MEMO_FILE_H
#define CE_MEMO_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CE_MEMO_MOST = 64 * 1024 * 1024 };

struct ce_fields {
	const char *next, *end;
	int bad; /* a field was asked for that is not there, or not a number */
};

/* Return zlib's CRC-32 of the data; `before` is the CRC of what precedes, 0 at the beginning. */
uint32_t ce_crc(uint32_t before, const void *data, size_t size);

/* Begin with the fields of a file: it consists of `magic`, the checksum of the rest as a field, and the rest. Return -1 for
 * another one, and for one that is not as it was written: a disk may have changed it. */
int ce_open_fields(const char *text, size_t size, const char *magic, struct ce_fields *fields);

/* Return the next field; "" with `bad` if there is none. */
const char *ce_take(struct ce_fields *fields);

/* Return the next field, which has digits alone; 0 with `bad` for another one. */
long long ce_take_number(struct ce_fields *fields);

/* Return the next bytes: their number is the field before them, they may include NULs, and a NUL follows them. */
const char *ce_take_bytes(struct ce_fields *fields, size_t *size);

/* Return where a table of `width` fields for each entry begins, which is with their number, and move past it. */
struct ce_fields ce_take_table(struct ce_fields *fields, int width);

/* Take the next field and return whether it is this one. */
int ce_is_next(struct ce_fields *fields, const char *expected);

/* Open a directory that is this user's, is no link and has none of the mode bits `others`. Return -1 otherwise. */
int ce_open_own(int at, const char *path, uid_t uid, mode_t others);

/* Return the content of a file that is the user's alone, no link and no longer than `limit`, and a NUL after it, on the
 * heap; NULL for any other. */
char *ce_read_own(int at, const char *path, uid_t uid, size_t limit, size_t *size);

#endif
