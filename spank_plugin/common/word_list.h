/* Lists of words in one text, with a blank before and after each. */
#pragma once

#include <stdio.h>
#include <string.h>

/* Return whether the list has the word. One that does not fit is longer than those of all lists. */
static inline int ce_is_in(const char *list, const char *word)
{
	char whole[32];

	return strchr(word, ' ') == NULL &&
	       snprintf(whole, sizeof whole, " %s ", word) < (int)sizeof whole && strstr(list, whole) != NULL;
}
