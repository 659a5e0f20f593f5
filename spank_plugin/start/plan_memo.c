#define _GNU_SOURCE
#include "plan_memo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/io.h"
#include "common/memo_file.h"
#include "common/planner_output.h"

#define MAGIC "container-engine plan memo 8\n"

enum { OTHERS_WRITE = 022 };
enum { SECRET_BYTES = 32 };

/* Return the value of a variable, NULL if it is unset. A name with '=' is always unset; getenv would look for
 * it as the beginning of an entry. */
static const char *variable(char **environment, const char *name)
{
	size_t length = strlen(name);

	for (char **entry = environment; strchr(name, '=') == NULL && *entry != NULL; entry++) {
		if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
			return *entry + length + 1;
	}
	return NULL;
}

/* ---- the file ---------------------------------------------------------------------------------- */

/* Return the directory of this user's memos, on the heap; NULL if the environment does not name one. */
static char *place_of(char **environment)
{
	const char *cache = variable(environment, "XDG_CACHE_HOME"), *home = variable(environment, "HOME");
	int has_cache = cache != NULL && cache[0] == '/';
	char *place;

	if (!has_cache && (home == NULL || home[0] != '/'))
		return NULL;
	if (asprintf(&place, "%s%s/container-engine/plans", has_cache ? cache : home,
		     has_cache ? "" : "/.cache") < 0)
		return NULL;
	return place;
}

/* ---- the key ----------------------------------------------------------------------------------- */

/* Return the key of a request as a memo has it, on the heap: name, directory, prefix and options, each with a
 * NUL after it. NULL on failure. */
static char *key_of(const struct ce_request *request, const char *directory, size_t *size)
{
	char *key = NULL;
	FILE *stream = open_memstream(&key, size);

	if (stream == NULL)
		return NULL;
	fprintf(stream, "%s%s%c", request->name != NULL ? "=" : "-",
		request->name != NULL ? request->name : "", 0);
	fprintf(stream, "%s%c%s%c", directory, 0, request->prefix, 0);
	for (char *const *option = request->options; *option != NULL; option++)
		fprintf(stream, "%zu:%s", strlen(*option), *option);
	fputc(0, stream);
	if (fclose(stream) == 0)
		return key;
	free(key);
	return NULL;
}

/* Return FNV-1a of the key. A collision only costs time: the memo holds the key. */
static uint64_t hash_of(const char *key, size_t size)
{
	uint64_t value = 0xcbf29ce484222325, prime = 0x100000001b3;

	for (size_t i = 0; i < size; i++)
		value = (value ^ (unsigned char)key[i]) * prime;
	return value;
}

/* ---- its fields -------------------------------------------------------------------------------- */

/* Return whether a file has this signature, which changes with its state even if it is absent. The number of
 * the device is left out: a network file system has a different one on each host. */
static int is_unchanged(const char *path, const char *signature)
{
	struct stat found;
	char now[128];

	if (stat(path, &found) < 0)
		snprintf(now, sizeof now, "errno %d", errno);
	else
		snprintf(now, sizeof now, "%llu %lld %lld %lld", (unsigned long long)found.st_ino,
			 (long long)found.st_size, ce_in_ns(found.st_mtim), ce_in_ns(found.st_ctim));
	return strcmp(now, signature) == 0;
}

static int is_same_value(const char *now, const char *value)
{
	return now == NULL ? strcmp(value, "-") == 0 : value[0] == '=' && strcmp(value + 1, now) == 0;
}

static int are_files_unchanged(struct ce_fields *fields)
{
	for (long long left = ce_take_number(fields); left > 0 && !fields->bad; left--) {
		const char *path = ce_take(fields), *signature = ce_take(fields);
		if (fields->bad || !is_unchanged(path, signature))
			return 0;
	}
	return !fields->bad;
}

static int are_variables_unchanged(struct ce_fields *fields, char **environment)
{
	for (long long left = ce_take_number(fields); left > 0 && !fields->bad; left--) {
		const char *name = ce_take(fields), *value = ce_take(fields);
		if (fields->bad || !is_same_value(variable(environment, name), value))
			return 0;
	}
	return !fields->bad;
}

/* Return whether the memo has a plan and its output ends with the keyword that announces one, or has none and
 * its output says that there is no container. */
static int is_output(const struct ce_memo *memo)
{
	struct ce_fields parts = memo->parts;
	size_t size = strlen(memo->head), word = strlen(CE_WORD_PLAN);

	if (ce_take_number(&parts) == 0)
		return strcmp(memo->head, CE_WORD_HOST) == 0;
	return size >= word && strcmp(memo->head + size - word, CE_WORD_PLAN) == 0;
}

static int is_key_next(struct ce_fields *fields, const char *key, size_t size)
{
	if ((size_t)(fields->end - fields->next) < size || memcmp(fields->next, key, size) != 0)
		return 0;
	fields->next += size;
	return 1;
}

int ce_memo_check(const struct ce_request *request, const char *key, size_t key_size, size_t size,
		  struct ce_memo *memo)
{
	struct ce_fields fields;
	char uid[32];

	if (ce_open_fields(memo->text, size, MAGIC, &fields) < 0)
		return -1;
	snprintf(uid, sizeof uid, "%lu", (unsigned long)request->uid);
	if (!ce_is_next(&fields, CE_VERSION) || !ce_is_next(&fields, uid) ||
	    !is_key_next(&fields, key, key_size))
		return -1;
	long long expiry = ce_take_number(&fields);
	if (fields.bad || (expiry != 0 && time(NULL) >= expiry))
		return -1;
	if (!are_files_unchanged(&fields) || !are_variables_unchanged(&fields, request->environment))
		return -1;
	memo->notices = ce_take(&fields);
	memo->head = ce_take(&fields);
	memo->parts = ce_take_table(&fields, 1);
	return ce_is_next(&fields, "end") && fields.next == fields.end && is_output(memo) ? 0 : -1;
}

/* Return the memo with this key, unchecked, on the heap; NULL if there is none. */
static char *read_memo(const struct ce_request *request, const char *key, size_t key_size, size_t *size)
{
	CE_AUTO_FREE char *place = place_of(request->environment);
	CE_AUTO_FD directory = place != NULL ? ce_open_own(AT_FDCWD, place, request->uid, OTHERS_WRITE) : -1;
	char name[32];

	if (directory < 0)
		return NULL;
	/* the NUL after the last part is not in the name */
	snprintf(name, sizeof name, "%016llx", (unsigned long long)hash_of(key, key_size - 1));
	return ce_read_own(directory, name, request->uid, CE_MEMO_MOST, size);
}

int ce_memo_recall(const struct ce_request *request, struct ce_memo *memo)
{
	CE_AUTO_FREE char *directory = getcwd(NULL, 0), *key = NULL;
	size_t key_size = 0, size = 0;

	*memo = (struct ce_memo){ 0 };
	if (directory == NULL || (key = key_of(request, directory, &key_size)) == NULL ||
	    (memo->text = read_memo(request, key, key_size, &size)) == NULL)
		return -1;
	if (ce_memo_check(request, key, key_size, size, memo) == 0)
		return 0;
	free(memo->text);
	*memo = (struct ce_memo){ 0 };
	return -1;
}

/* ---- the secret -------------------------------------------------------------------------------- */

/* Make a secret of hexadecimal digits. Return 0, or -1 on failure. All nodes of a step get it with the plan,
 * no other process knows it, and it is never written to a memo. */
static int make_secret(char secret[2 * SECRET_BYTES + 1])
{
	unsigned char bytes[SECRET_BYTES];

	if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
		return -1;
	for (int i = 0; i < SECRET_BYTES; i++)
		snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

char *ce_memo_plan(const struct ce_memo *memo)
{
	char secret[2 * SECRET_BYTES + 1], *plan = NULL;
	struct ce_fields parts = memo->parts;
	size_t size;
	FILE *stream = make_secret(secret) == 0 ? open_memstream(&plan, &size) : NULL;

	if (stream == NULL)
		return NULL;
	for (long long left = ce_take_number(&parts); left > 0; left--) {
		fputs(ce_take(&parts), stream);
		if (left > 1)
			fputs(secret, stream);
	}
	if (fclose(stream) == 0)
		return plan;
	free(plan);
	return NULL;
}
