#define _GNU_SOURCE
#include "squash_walk.h"

#include <stdlib.h>
#include <string.h>

#define FARTHEST 80000

struct walk {
	struct squash *squash;
	uint64_t inodes[2000];
	size_t count;
};

static int note(void *context, const struct squash_entry *entry)
{
	struct walk *walk = context;

	if (strchr(entry->name, '/') != NULL || strlen(entry->name) > 255)
		abort();
	if (walk->count < sizeof walk->inodes / sizeof *walk->inodes)
		walk->inodes[walk->count++] = entry->inode;
	return 0;
}

static void read_whatever(struct squash *squash, uint64_t inode, const struct stat *st)
{
	struct squash_piece piece;

	/* a damaged file may claim any size */
	for (uint64_t offset = 0; offset < FARTHEST; offset += 3000) {
		if (squash_read(squash, inode, offset, 5000, &piece) == 0)
			squash_release(squash, &piece);
	}
	if (squash_read(squash, inode, (uint64_t)st->st_size - 1, 5000, &piece) == 0)
		squash_release(squash, &piece);
}

struct squash *squash_open(const char *path, const char **why)
{
	struct squash *squash = squash_file(path, why);

	if (!squash)
		return NULL;
	*why = squash_load(squash);
	if (!*why)
		return squash;
	squash_close(squash);
	return NULL;
}

void squash_ask_all(struct squash *squash)
{
	struct walk walk = { .squash = squash, .inodes = { squash_root(squash) }, .count = 1 };
	struct stat st;
	char *text;

	for (size_t i = 0; i < walk.count; i++) {
		uint64_t inode = walk.inodes[i];
		if (squash_stat(squash, inode, &st) < 0)
			continue;
		if (S_ISDIR(st.st_mode))
			squash_list(squash, inode, 0, i % 2, note, &walk);
		if (squash_link(squash, inode, &text) == 0)
			free(text);
		if (squash_xattrs(squash, inode, &text) >= 0)
			free(text);
		if (S_ISREG(st.st_mode))
			read_whatever(squash, inode, &st);
	}
}
