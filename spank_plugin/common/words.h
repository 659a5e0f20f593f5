/* Words: lists of them in one text, with a blank before and after each, and those of a shell. */
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

/* The characters that mean nothing to a shell within a word. */
#define CE_SHELL_PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_:=,@%+-"
