#define _GNU_SOURCE
#include "site_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/io.h"

enum { MAX_FILE = 1 << 20 };

/* the names of rules, and the beginnings of escapes, with which TOML lets any of these names be written
 * otherwise */
static const char *const rules[] = { "site_images_only", "image_digests", "mount_sources", "image_registries",
				     "signed_images_only", "\\u", "\\U" };
static const char system_place[] = "/etc/container-engine";

static int file_may_rule(const char *path)
{
	size_t size = 0;
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, path, 0, MAX_FILE, &size);

	if (text == NULL)
		return errno != ENOENT;
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		if (memmem(text, size, rules[i], strlen(rules[i])) != NULL)
			return 1;
	}
	return 0;
}

static int is_read(const char *name)
{
	size_t length = strlen(name), tail = strlen(".toml");

	return name[0] != '.' && length > tail && strcmp(name + length - tail, ".toml") == 0;
}

static int entries_may_rule(const char *directory)
{
	char path[PATH_MAX];
	const char *name;
	CE_AUTO_DIR *stream = opendir(directory);

	if (stream == NULL)
		return errno != ENOENT;
	while (errno = 0, (name = ce_next_name(stream)) != NULL) {
		int length = snprintf(path, sizeof path, "%s/%s", directory, name);
		if (length < 0 || (size_t)length >= sizeof path || (is_read(name) && file_may_rule(path)))
			return 1;
	}
	return errno != 0;
}

static int place_may_rule(const char *directory)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/config.toml", directory);

	if (length < 0 || (size_t)length >= sizeof path || file_may_rule(path))
		return 1;
	snprintf(path, sizeof path, "%s/conf.d", directory);
	return entries_may_rule(path);
}

int ce_site_may_rule(const char *prefix)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s%s", prefix, system_place);

	return length < 0 || (size_t)length >= sizeof path || place_may_rule(path) ||
	       place_may_rule(system_place);
}
