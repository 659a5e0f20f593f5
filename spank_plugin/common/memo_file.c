#define _GNU_SOURCE
#include "memo_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io.h"

enum { MAX_DIGITS = 18, OTHERS = 077 };

uint32_t ce_crc(uint32_t before, const void *data, size_t size)
{
	static uint32_t table[256];
	const unsigned char *bytes = data;
	uint32_t crc = ~before;

	/* the last entry is 0 until the table has been made */
	for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
		table[i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[i] = (table[i] >> 1) ^ (0xedb88320 & (0 - (table[i] & 1)));
	}
	for (size_t i = 0; i < size; i++)
		crc = table[(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
	return ~crc;
}

int ce_open_fields(const char *text, size_t size, const char *magic, struct ce_fields *fields)
{
	size_t begin = strlen(magic);
	char now[16];

	if (size < begin || memcmp(text, magic, begin) != 0)
		return -1;
	*fields = (struct ce_fields){ text + begin, text + size, 0 };
	const char *written = ce_take(fields);
	snprintf(now, sizeof now, "%08x", ce_crc(0, fields->next, (size_t)(fields->end - fields->next)));
	return strcmp(written, now) == 0 && !fields->bad ? 0 : -1;
}

const char *ce_take(struct ce_fields *fields)
{
	const char *field = fields->next;
	const char *nul = memchr(field, '\0', (size_t)(fields->end - field));

	fields->bad |= nul == NULL;
	if (nul == NULL)
		return "";
	fields->next = nul + 1;
	return field;
}

long long ce_take_number(struct ce_fields *fields)
{
	const char *field = ce_take(fields);
	size_t digits = strspn(field, "0123456789");

	if (digits == 0 || digits > MAX_DIGITS || field[digits] != '\0')
		fields->bad = 1;
	return fields->bad ? 0 : strtoll(field, NULL, 10);
}

const char *ce_take_bytes(struct ce_fields *fields, size_t *size)
{
	long long count = ce_take_number(fields);
	const char *bytes = fields->next;

	*size = 0;
	if (fields->bad || count >= fields->end - bytes || bytes[count] != '\0') {
		fields->bad = 1;
		return "";
	}
	*size = (size_t)count;
	fields->next = bytes + count + 1;
	return bytes;
}

struct ce_fields ce_take_table(struct ce_fields *fields, int width)
{
	struct ce_fields table = *fields;

	for (long long left = ce_take_number(fields); left > 0 && !fields->bad; left--) {
		for (int i = 0; i < width; i++)
			(void)ce_take(fields);
	}
	return table;
}

int ce_is_next(struct ce_fields *fields, const char *expected)
{
	return strcmp(ce_take(fields), expected) == 0 && !fields->bad;
}

int ce_open_own(int at, const char *path, uid_t uid, mode_t others)
{
	CE_AUTO_FD fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat found;

	if (fd < 0 || fstat(fd, &found) < 0 || found.st_uid != uid || (found.st_mode & others) != 0)
		return -1;
	return ce_release_fd(&fd);
}

char *ce_read_own(int at, const char *path, uid_t uid, size_t limit, size_t *size)
{
	CE_AUTO_FD fd = openat(at, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat found;

	if (fd < 0 || fstat(fd, &found) < 0 || !S_ISREG(found.st_mode) || found.st_uid != uid ||
	    (found.st_mode & OTHERS) != 0)
		return NULL;
	return ce_read_all(fd, limit, size);
}
