#include "step_env.h"

#include <string.h>

const char *ce_step_next(const struct ce_step_env *env, size_t *at)
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

	while ((entry = ce_step_next(env, &at)) != NULL) {
		if (strncmp(entry, name, length) == 0 && (entry[length] == '=' || entry[length] == '\0'))
			value = entry + length + (entry[length] == '=');
	}
	return value;
}

int ce_is_number(const char *text)
{
	return text != NULL && *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}
