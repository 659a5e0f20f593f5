#define _GNU_SOURCE
#include "join_memo.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/io.h"

#define MAGIC "container-engine join memo 1\n"

enum { MAX_RECORD = 16 * 1024 * 1024 };
/* facts of which only Python knows what they mean for a step (plugin/launcher.h) */
static const char *const pythons[] = { "CE_PMIX_DIR", "CE_BATCH_SCRIPT" };

/* ---- the memo ---------------------------------------------------------------------------------- */

int ce_join_read(const char *text, size_t size, struct ce_join_memo *memo)
{
	size_t magic = strlen(MAGIC);

	if (size < magic || memcmp(text, MAGIC, magic) != 0)
		return -1;
	struct ce_fields fields = { text + magic, text + size, 0 };
	if (!ce_is_next(&fields, CE_VERSION))
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
	memo->conditions = ce_take_table(&fields, 1);
	memo->traces = ce_take(&fields);
	memo->trace_begin = ce_take(&fields);
	memo->trace_plan = ce_take(&fields);
	memo->trace_mounts = ce_take(&fields);
	memo->stems = ce_take_table(&fields, 1);
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

/* Return the next entry of a block at *at, NULL after the last; *at moves on. */
static const char *next_entry(const struct ce_step_env *env, size_t *at)
{
	const char *entry = env->text + *at;

	if (*at >= env->size)
		return NULL;
	*at += strlen(entry) + 1;
	return entry;
}

const char *ce_step_variable(const struct ce_step_env *env, const char *name)
{
	size_t length = strlen(name), at = 0;
	const char *entry, *value = NULL;

	while ((entry = next_entry(env, &at)) != NULL) {
		if (strncmp(entry, name, length) == 0 && (entry[length] == '=' || entry[length] == '\0'))
			value = entry + length + (entry[length] == '=');
	}
	return value;
}

/* Return whether the condition of a hook, NAME or NAME=pattern, may hold in this step. */
static int may_hold(const char *condition, const struct ce_step_env *env)
{
	size_t length = strcspn(condition, "=");
	CE_AUTO_FREE char *name = strndup(condition, length);
	const char *value = name != NULL ? ce_step_variable(env, name) : "";

	if (value == NULL)
		return 0;
	return condition[length] == '\0' || strpbrk(condition + length, "*?[") != NULL ||
	       strcmp(condition + length + 1, value) == 0;
}

/* Return whether the name in `entry` has the text, whatever the case of its letters. */
static int is_named(const char *entry, size_t length, const char *stem)
{
	size_t wanted = strlen(stem);

	for (size_t i = 0; i + wanted <= length; i++) {
		size_t same = 0;
		while (same < wanted && toupper((unsigned char)entry[i + same]) == (unsigned char)stem[same])
			same++;
		if (same == wanted)
			return 1;
	}
	return 0;
}

/* Return whether a variable may be a secret: by its name, or because its name is not ASCII, whose capital letters are
 * not known here. */
static int may_be_secret(struct ce_fields stems, const char *entry, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if ((unsigned char)entry[i] >= 0x80)
			return 1;
	}
	for (long long left = ce_take_number(&stems); left > 0; left--) {
		if (is_named(entry, length, ce_take(&stems)))
			return 1;
	}
	return 0;
}

/* Return whether the trace's text about mounts has the value of a variable that may be secret. */
static int shows_secret(const struct ce_join_memo *memo, const struct ce_step_env *env)
{
	const char *entry;

	for (size_t at = 0; (entry = next_entry(env, &at)) != NULL;) {
		size_t length = strcspn(entry, "=");
		const char *value = entry + length + (entry[length] == '=');
		if (strlen(value) > 1 && strstr(memo->trace_mounts, value) != NULL &&
		    may_be_secret(memo->stems, entry, length))
			return 1;
	}
	return 0;
}

int ce_join_suits(const struct ce_join_memo *memo, const struct ce_step_env *env)
{
	struct ce_fields conditions = memo->conditions;

	for (size_t i = 0; i < sizeof pythons / sizeof pythons[0]; i++) {
		if (ce_step_variable(env, pythons[i]) != NULL)
			return 0;
	}
	for (long long left = ce_take_number(&conditions); left > 0; left--) {
		if (may_hold(ce_take(&conditions), env))
			return 0;
	}
	return !shows_secret(memo, env);
}

/* ---- the container ----------------------------------------------------------------------------- */

static int has_content(const char *directory, const char *name, const char *wanted)
{
	char path[PATH_MAX];
	size_t size = 0;
	int length = snprintf(path, sizeof path, "%s/%s", directory, name);

	if (length < 0 || (size_t)length >= sizeof path)
		return 0;
	CE_AUTO_FD fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	CE_AUTO_FREE char *text = fd >= 0 ? ce_read_all(fd, MAX_RECORD, &size) : NULL;
	return text != NULL && size == strlen(wanted) && memcmp(text, wanted, size) == 0;
}

/* Return whether the file is the one that is served (container_engine/node/kept/records.py, _identity). */
static int is_same_file(const char *path, const char *identity)
{
	struct stat found;
	char now[96];

	if (stat(path, &found) < 0)
		return 0;
	snprintf(now, sizeof now, "%llu %lld %lld", (unsigned long long)found.st_ino, (long long)found.st_size,
		 (long long)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec);
	return strcmp(now, identity) == 0;
}

int ce_join_is_unchanged(const struct ce_join_memo *memo)
{
	struct ce_fields images = memo->images;

	if (!has_content(memo->directory, "image", memo->image) || !has_content(memo->directory, "made", memo->made) ||
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
