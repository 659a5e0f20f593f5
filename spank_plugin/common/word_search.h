/* Looks in the texts of shells and scripts for words that are programs of a kind. Nothing is executed or
 * expanded: a name made of variables is not found. */
#pragma once

enum { CE_WORD_SIZE = 128 };

/* A search for words that are programs in the task's PATH for which `is` returns true. Texts for which
 * `skips`, if set, returns true are skipped. */
struct ce_search {
	const char *path;
	int (*is)(const char *file);
	int (*skips)(const char *text);
	char *name; /* of CE_WORD_SIZE; the word that was found */
};

/* Return whether the word names such a program, as a shell would find it, and note its name. */
int ce_names_it(const struct ce_search *search, const char *word);

/* Return whether a shell's text names one. This changes the text. */
int ce_in_text(const struct ce_search *search, char *text);

/* Return whether the text of a file names one: of a file that a shell reads, or else only of a script that
 * names its interpreter. */
int ce_in_script(const struct ce_search *search, const char *file, int has_shell);
