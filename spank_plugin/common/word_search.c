#define _GNU_SOURCE
#include "word_search.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

/* Wrappers are short; of longer texts only the beginning is read, so that a launch never waits for this. */
enum { MOST_TEXT = 16 * 1024, MOST_WORDS = 256 };

/* Characters that end a word of a shell. Quotes inside a word do, too, but no usual program's name has
 * any. */
#define SEPARATORS " \t\r\n;&|()<>\"'`"

static int is_at(const struct ce_search *search, const char *directory, size_t length, const char *word)
{
	char file[PATH_MAX];

	return snprintf(file, sizeof file, "%.*s/%s", (int)length, directory, word) < (int)sizeof file &&
	       access(file, X_OK) == 0 && search->is(file);
}

static int is_found(const struct ce_search *search, const char *word)
{
	const char *path = search->path;

	if (strchr(word, '/') != NULL)
		return access(word, X_OK) == 0 && search->is(word);
	while (path != NULL && *path != '\0') {
		size_t length = strcspn(path, ":");
		if (length > 0 && is_at(search, path, length, word))
			return 1;
		path += length + (path[length] == ':');
	}
	return 0;
}

int ce_names_it(const struct ce_search *search, const char *word)
{
	if (word[0] == '-' || word[0] == '#' || strpbrk(word, "=$*{}[]\\") != NULL || !is_found(search, word))
		return 0;
	snprintf(search->name, CE_WORD_SIZE, "%s", word);
	return 1;
}

int ce_in_text(const struct ce_search *search, char *text)
{
	int words = 0;
	char *line_end = NULL, *word_end = NULL;

	if (search->skips != NULL && search->skips(text))
		return 0;
	for (char *line = strtok_r(text, "\n", &line_end); line != NULL;
	     line = strtok_r(NULL, "\n", &line_end)) {
		if (line[strspn(line, " \t")] == '#')
			continue;
		for (char *word = strtok_r(line, SEPARATORS, &word_end); word != NULL && words++ < MOST_WORDS;
		     word = strtok_r(NULL, SEPARATORS, &word_end)) {
			if (ce_names_it(search, word))
				return 1;
		}
	}
	return 0;
}

int ce_in_script(const struct ce_search *search, const char *file, int has_shell)
{
	char text[MOST_TEXT + 1];
	struct stat st;
	/* opening a FIFO would block */
	CE_AUTO_FD fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t size = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, text, MOST_TEXT) : -1;

	if (size < 2 || memchr(text, '\0', (size_t)size) != NULL ||
	    (!has_shell && (text[0] != '#' || text[1] != '!')))
		return 0;
	text[size] = '\0';
	return ce_in_text(search, text);
}
