#define _GNU_SOURCE
#include "join_memo.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/io.h"

#define MAGIC "container-engine join memo 3\n"

/* must match container_engine/base/private_files.py */
enum { MAX_RECORD = 16 * 1024 * 1024 };

/* ---- the memo ---------------------------------------------------------------------------------- */

int ce_join_read(const char *text, size_t size, struct ce_join_memo *memo)
{
	struct ce_fields fields;

	if (ce_open_fields(text, size, MAGIC, &fields) < 0 || !ce_is_next(&fields, CE_VERSION))
		return -1;
	memo->plan = ce_take(&fields);
	memo->directory = ce_take(&fields);
	memo->image = ce_take(&fields);
	memo->made = ce_take(&fields);
	memo->files = ce_take(&fields);
	memo->images = ce_take_table(&fields, 2);
	memo->block = ce_take_bytes(&fields, &memo->block_size);
	memo->records = ce_take_bytes(&fields, &memo->records_size);
	memo->workdir = ce_take(&fields);
	ce_step_read(&fields, &memo->step);
	return ce_is_next(&fields, "end") && fields.next == fields.end ? 0 : -1;
}

/* ---- the step ---------------------------------------------------------------------------------- */

int ce_join_wanted(const char *fact, struct ce_wanted *wanted)
{
	if (strspn(fact, "0123456789abcdef") != CE_KEPT_KEY || fact[CE_KEPT_KEY] != '/')
		return -1;
	memcpy(wanted->key, fact, CE_KEPT_KEY);
	wanted->key[CE_KEPT_KEY] = '\0';
	wanted->directory = fact + CE_KEPT_KEY;
	return 0;
}

/* ---- the container ----------------------------------------------------------------------------- */

static int has_content(const char *directory, const char *name, const char *wanted)
{
	char path[PATH_MAX];
	size_t size = 0;
	int length = snprintf(path, sizeof path, "%s/%s", directory, name);

	if (length < 0 || (size_t)length >= sizeof path)
		return 0;
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, path, O_NOFOLLOW, MAX_RECORD, &size);
	return text != NULL && size == strlen(wanted) && memcmp(text, wanted, size) == 0;
}

/* Return whether the file is still the one that is served, by its inode, size and time of modification
 * (container_engine/node/kept/records.py, _identity). */
static int is_same_file(const char *path, const char *identity)
{
	struct stat found;
	char now[96];

	if (stat(path, &found) < 0)
		return 0;
	snprintf(now, sizeof now, "%llu %lld %lld", (unsigned long long)found.st_ino,
		 (long long)found.st_size, ce_in_ns(found.st_mtim));
	return strcmp(now, identity) == 0;
}

int ce_join_is_unchanged(const struct ce_join_memo *memo)
{
	struct ce_fields images = memo->images;

	if (!has_content(memo->directory, "image", memo->image) ||
	    !has_content(memo->directory, "made", memo->made) ||
	    !has_content(memo->directory, "files", memo->files))
		return 0;
	for (long long left = ce_take_number(&images); left > 0; left--) {
		const char *path = ce_take(&images), *identity = ce_take(&images);
		if (!is_same_file(path, identity))
			return 0;
	}
	return 1;
}

int ce_join_knows(const struct ce_join_memo *memo, const char *image)
{
	struct ce_fields images = memo->images;

	for (long long left = ce_take_number(&images); left > 0; left--) {
		int is_this = strcmp(ce_take(&images), image) == 0;
		(void)ce_take(&images);
		if (is_this)
			return 1;
	}
	return 0;
}
