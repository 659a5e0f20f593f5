#define _GNU_SOURCE
#include "plan_answer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/io.h"
#include "common/planner_output.h"

enum { OTHERS = 077, SECRET_BYTES = 32 };

/* Return the value of a variable, NULL if it is unset. A name with '=' is always unset; getenv would look for
 * it as the beginning of an entry. */
static const char *variable(const void *environment, const char *name)
{
	size_t length = strlen(name);

	for (char *const *entry = environment; strchr(name, '=') == NULL && *entry != NULL; entry++) {
		if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
			return *entry + length + 1;
	}
	return NULL;
}

/* ---- the answer -------------------------------------------------------------------------------- */

/* Return the directory of this user's plans, on the heap; NULL if the environment does not name one. */
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

/* Return the words of a request, on the heap. NULL on failure. */
static char *words_of(const struct ce_request *request, size_t *size)
{
	CE_AUTO_FREE char *directory = getcwd(NULL, 0);
	char *words = NULL;
	FILE *stream = directory != NULL ? open_memstream(&words, size) : NULL;

	if (stream == NULL)
		return NULL;
	fprintf(stream, "%s%s%c%s%c", request->name != NULL ? "=" : "-",
		request->name != NULL ? request->name : "", 0, directory, 0);
	for (char *const *option = request->options; *option != NULL; option++)
		fprintf(stream, "%s%c", *option, 0);
	if (fclose(stream) == 0)
		return words;
	free(words);
	return NULL;
}

/* Return whether there is a plan and its output ends with the keyword that announces one, or has none and
 * its output says that there is no container. */
static int is_output(const struct ce_plan *plan)
{
	struct ce_fields parts = plan->parts;
	size_t size = strlen(plan->head), word = strlen(CE_WORD_PLAN);

	if (ce_take_number(&parts) == 0)
		return strcmp(plan->head, CE_WORD_HOST) == 0;
	return size >= word && strcmp(plan->head + size - word, CE_WORD_PLAN) == 0;
}

int ce_plan_read(struct ce_fields result, struct ce_plan *plan)
{
	plan->notices = ce_take(&result);
	plan->head = ce_take(&result);
	plan->parts = ce_take_table(&result, 1);
	return !result.bad && result.next == result.end && is_output(plan) ? 0 : -1;
}

int ce_plan_recall(const struct ce_request *request, struct ce_answer *answer, struct ce_plan *plan)
{
	size_t size = 0;
	CE_AUTO_FREE char *place = place_of(request->environment), *words = words_of(request, &size);
	CE_AUTO_FD directory = place != NULL ? ce_open_own(AT_FDCWD, place, geteuid(), OTHERS) : -1;

	if (directory < 0 || words == NULL)
		return -1;
	const struct ce_query query = { request->prefix, 1, words, size, variable, request->environment };
	if (ce_answer_find(directory, &query, answer) < 0)
		return -1;
	if (ce_plan_read(answer->result, plan) == 0)
		return 0;
	free(answer->text);
	return -1;
}

/* ---- the secret -------------------------------------------------------------------------------- */

/* Make a secret of hexadecimal digits. Return 0, or -1 on failure. All nodes of a step get it with the plan,
 * no other process knows it, and it is never recorded. */
static int make_secret(char secret[2 * SECRET_BYTES + 1])
{
	unsigned char bytes[SECRET_BYTES];

	if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
		return -1;
	for (int i = 0; i < SECRET_BYTES; i++)
		snprintf(secret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

char *ce_plan_text(const struct ce_plan *plan)
{
	char secret[2 * SECRET_BYTES + 1], *text = NULL;
	struct ce_fields parts = plan->parts;
	size_t size;
	FILE *stream = make_secret(secret) == 0 ? open_memstream(&text, &size) : NULL;

	if (stream == NULL)
		return NULL;
	for (long long left = ce_take_number(&parts); left > 0; left--) {
		fputs(ce_take(&parts), stream);
		if (left > 1)
			fputs(secret, stream);
	}
	if (fclose(stream) == 0)
		return text;
	free(text);
	return NULL;
}
