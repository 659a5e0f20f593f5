#include "memo_file.h"

#include <stdio.h>
#include <string.h>

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
