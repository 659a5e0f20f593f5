#define _GNU_SOURCE
#include "step_memo.h"

#include <ctype.h>
#include <string.h>

#include "common/io.h"

/* variables of the plugin (plugin/launcher.h) that only Python understands */
static const char *const for_python_only[] = { "CE_PMIX_DIR", "CE_BATCH_SCRIPT" };

void ce_step_read(struct ce_fields *fields, struct ce_step_memo *memo)
{
	memo->conditions = ce_take_table(fields, 1);
	memo->traces = ce_take(fields);
	memo->trace_begin = ce_take(fields);
	memo->trace_plan = ce_take(fields);
	memo->trace_mounts = ce_take(fields);
	memo->stems = ce_take_table(fields, 1);
}

/* Return the entry of a block at *at and move *at to the next one; NULL after the last. */
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

int ce_is_number(const char *text)
{
	return text != NULL && *text != '\0' && text[strspn(text, "0123456789")] == '\0';
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

/* Return whether the name in `entry` contains the text, whatever the case of its letters. */
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

/* Return whether a variable may be a secret: by its name, or because its name has other letters than ASCII's,
 * whose capital forms are not known here. */
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

/* Return whether the trace's text about mounts contains the value of a variable that may be a secret. */
static int shows_secret(const struct ce_step_memo *memo, const struct ce_step_env *env)
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

int ce_step_suits(const struct ce_step_memo *memo, const struct ce_step_env *env)
{
	struct ce_fields conditions = memo->conditions;

	for (size_t i = 0; i < sizeof for_python_only / sizeof for_python_only[0]; i++) {
		if (ce_step_variable(env, for_python_only[i]) != NULL)
			return 0;
	}
	for (long long left = ce_take_number(&conditions); left > 0; left--) {
		if (may_hold(ce_take(&conditions), env))
			return 0;
	}
	return !shows_secret(memo, env);
}
