#define _GNU_SOURCE
#include "multi_prog.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a comment to Slurm */
static const char heading[] = "# The Container Engine starts each program by its ce-join.\n";

/* Return whether the words from `word` to the next ":" are those of argv. */
static int is_rest(const char *word, const char *end, int argc, char *const *argv)
{
	for (int i = 0; i < argc; i++, word += strlen(word) + 1) {
		if (word >= end || strcmp(word, argv[i]) != 0)
			return 0;
	}
	return word >= end || strcmp(word, ":") == 0;
}

int ce_multi_prog_given(const char *line, size_t size, int argc, char *const *argv)
{
	const char *end = line + size, *next;
	int found = 0;

	if (argc < 2)
		return 0;
	for (const char *word = line; word < end; word = next) {
		next = word + strlen(word) + 1;
		if (strcmp(word, argv[0]) != 0)
			continue;
		if (is_rest(next, end, argc - 1, argv + 1))
			return 0; /* a command, as it was typed */
		found |= is_rest(next, end, argc - 2, argv + 2);
	}
	return found;
}

static size_t skip(const char *line, size_t at, size_t length, int spaces)
{
	while (at < length && !isspace((unsigned char)line[at]) == !spaces)
		at++;
	return at;
}

/* Return where the program of a line begins, after the ranks; `length` if there is none. */
static size_t program_in(const char *line, size_t length)
{
	size_t ranks = skip(line, 0, length, 1);

	if (ranks < length && line[ranks] == '#')
		return length;
	return skip(line, skip(line, ranks, length, 0), length, 1);
}

/* Write a word of the file: Slurm removes a backslash and takes the next character literally. */
static void put_word(FILE *to, const char *word)
{
	for (; *word != '\0'; word++) {
		if (!isalnum((unsigned char)*word) && strchr("/._-+", *word) == NULL)
			fputc('\\', to);
		fputc(*word, to);
	}
	fputc(' ', to);
}

static void put_text(FILE *to, const char *text, const char *program)
{
	int continued = 0;

	fputs(heading, to);
	while (*text != '\0') {
		size_t length = strcspn(text, "\n");
		size_t at = continued ? length : program_in(text, length);

		fwrite(text, 1, at, to);
		if (at < length)
			put_word(to, program);
		fwrite(text + at, 1, length - at, to);
		/* Slurm skips empty lines altogether */
		if (length > 0)
			continued = text[length - 1] == '\\';
		text += length;
		if (*text == '\n')
			fputc(*text++, to);
	}
}

static int is_preceded(const char *text)
{
	return strncmp(text, heading, strlen(heading)) == 0;
}

int ce_multi_prog_prefix(char **text, const char *program, struct ce_error *err)
{
	char *preceded = NULL;
	size_t size = 0;

	if (is_preceded(*text))
		return 0;
	FILE *to = open_memstream(&preceded, &size);
	if (to != NULL)
		put_text(to, *text, program);
	if (to == NULL || (fclose(to) != 0)) {
		free(preceded);
		return ce_fail(err, "out of memory");
	}
	*text = preceded;
	return 0;
}

int ce_multi_prog_prefixed(int argc, char *const *argv)
{
	return argc > 1 && is_preceded(argv[1]);
}
