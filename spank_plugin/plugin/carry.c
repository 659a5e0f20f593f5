#define _GNU_SOURCE
#include "carry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/io.h"

enum ce_word ce_carry_word(const char *text, const char **plan)
{
	*plan = NULL;
	if (text == NULL)
		return CE_SAYS_NOTHING;
	if (strcmp(text, CE_WORD_HOST) == 0)
		return CE_SAYS_HOST;
	if (strncmp(text, CE_WORD_PLAN, strlen(CE_WORD_PLAN)) != 0 || text[strlen(CE_WORD_PLAN)] == '\0')
		return CE_SAYS_NOTHING;
	*plan = text + strlen(CE_WORD_PLAN);
	return CE_SAYS_PLAN;
}

int ce_carry_put(const char *plan, int64_t begun, struct ce_error *err)
{
	char name[64], count[16], times[64];
	size_t size = strlen(plan), parts = (size + CE_CARRY_PIECE - 1) / CE_CARRY_PIECE;

	for (size_t i = 0; i < parts; i++) {
		CE_AUTO_FREE char *piece = strndup(plan + i * CE_CARRY_PIECE, CE_CARRY_PIECE);
		snprintf(name, sizeof name, CE_CARRY_PART "%zu", i);
		if (piece == NULL || setenv(name, piece, 1) < 0)
			return ce_fail(err, "out of memory");
	}
	snprintf(times, sizeof times, "%lld %lld", (long long)begun, (long long)ce_now_ns());
	setenv(CE_CARRY_TIMES, times, 1);
	snprintf(count, sizeof count, "%zu", parts);
	return setenv(CE_CARRY_COUNT, count, 1) < 0 ? ce_fail(err, "out of memory") : 0;
}

void ce_carry_forget(void)
{
	unsetenv(CE_CARRY_COUNT);
	unsetenv(CE_CARRY_IMAGE);
	unsetenv(CE_CARRY_JOB_CONTAINER);
}

const char *ce_variable(char **environment, const char *name)
{
	size_t length = strlen(name);

	for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
		if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
			return *entry + length + 1;
	}
	return NULL;
}

char *ce_carry_get(char **environment)
{
	const char *count_text = ce_variable(environment, CE_CARRY_COUNT);
	char *end, name[64];
	long parts = count_text != NULL ? strtol(count_text, &end, 10) : -1;

	if (parts < 0 || parts > CE_CARRY_MAX_PARTS || *count_text == '\0' || *end != '\0')
		return NULL;
	CE_AUTO_FREE char *plan = malloc((size_t)parts * CE_CARRY_PIECE + 1);
	size_t used = 0;
	for (long i = 0; plan != NULL && i < parts; i++) {
		snprintf(name, sizeof name, CE_CARRY_PART "%ld", i);
		const char *piece = ce_variable(environment, name);
		size_t length = piece != NULL ? strlen(piece) : 0;
		if (length == 0 || length > CE_CARRY_PIECE)
			return NULL;
		memcpy(plan + used, piece, length);
		used += length;
	}
	if (plan == NULL)
		return NULL;
	plan[used] = '\0';
	char *result = plan;
	plan = NULL;
	return result;
}
