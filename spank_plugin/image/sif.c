#define _GNU_SOURCE
#include "sif.h"

#include <endian.h>
#include <string.h>

/* Apptainer makes room for 48 */
#define MOST_DESCRIPTORS 1024

#define MAGIC "SIF_MAGIC"
#define PARTITION 0x4004
#define SQUASHFS 1
#define PRIMARY_SYSTEM 2

/* Numbers are little-endian. The first descriptor follows at any offset, often an odd one. */
struct __attribute__((packed)) header {
	char launch[32], magic[10], version[3], arch[3], id[16];
	uint64_t created, modified, unused, descriptors, offset, size, data_offset, data_size;
};

struct __attribute__((packed)) descriptor {
	uint32_t type;
	uint8_t is_used;
	uint32_t id, group, link;
	uint64_t offset, size, padded, created, modified, uid, gid;
	char name[128];
	uint32_t file_system, partition;
	char rest[376];
};

_Static_assert(sizeof(struct header) == 128 && sizeof(struct descriptor) == 585, "as in the file");

static int is_primary(const struct descriptor *one)
{
	return one->is_used && le32toh(one->type) == PARTITION &&
	       le32toh(one->partition) == PRIMARY_SYSTEM;
}

const char *sif_find(sqfs_file_t *file, uint64_t *start, uint64_t *size)
{
	struct header header;
	struct descriptor one;
	uint64_t end = file->get_size(file);

	if (file->read_at(file, 0, &header, sizeof header) != 0 ||
	    memcmp(header.magic, MAGIC, sizeof header.magic) != 0)
		return "not a SquashFS 4.0 file system";
	uint64_t count = le64toh(header.descriptors), place = le64toh(header.offset);
	if (count > MOST_DESCRIPTORS || place > end || count * sizeof one > end - place)
		return "a SIF file with damaged descriptors";
	for (; count > 0; count--, place += sizeof one) {
		if (file->read_at(file, place, &one, sizeof one) != 0)
			return "its descriptors cannot be read";
		if (!is_primary(&one))
			continue;
		*start = le64toh(one.offset);
		*size = le64toh(one.size);
		if (le32toh(one.file_system) != SQUASHFS)
			return "a SIF file without a SquashFS file system";
		return *start <= end && *size <= end - *start ? NULL : "a SIF file that was cut short";
	}
	return "a SIF file without a root file system";
}
