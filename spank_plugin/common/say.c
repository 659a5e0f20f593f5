#define _GNU_SOURCE
#include "say.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io.h"

/* FNV-1a; if two messages ever share a mark, the only cost is that the second is not printed. */
static uint64_t hash(uint64_t value, const char *text)
{
	int in_number = 0;

	for (; *text != '\0'; text++) {
		int is_digit = *text >= '0' && *text <= '9';
		if (!is_digit || !in_number)
			value = (value ^ (is_digit ? '0' : (unsigned char)*text)) * 0x100000001B3;
		in_number = is_digit;
	}
	return value;
}

int ce_claim_message(int directory, const char *planned, const char *message)
{
	char name[32];
	uint64_t value = 0xCBF29CE484222325;

	for (; *planned != '\0'; planned++)
		value = (value ^ (unsigned char)*planned) * 0x100000001B3;
	snprintf(name, sizeof name, "said-%016llx", (unsigned long long)hash(value, message));
	if (directory < 0)
		return 1;
	CE_AUTO_FD fd = openat(directory, name,
			       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd >= 0 || errno != EEXIST;
}

/* Return whether the line has a prefix already, such as "ce: error: ". "ce: " alone is not enough: a command
 * may be called ce. */
static int is_finished(const char *line)
{
	static const char *const labels[] = {"error", "warning", "hint", "also", "details", "see"};

	if (strncmp(line, "ce: ", 4) != 0)
		return 0;
	line += 4;
	for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
		size_t length = strlen(labels[i]);
		if (strncmp(line, labels[i], length) == 0 && strncmp(line + length, ": ", 2) == 0)
			return 1;
	}
	return 0;
}

/* Replace control characters other than `spared` by blanks, including those that UTF-8 has beyond ASCII. */
static void blank_controls(char *text, char spared)
{
	for (unsigned char *byte = (unsigned char *)text; *byte != '\0'; byte++) {
		if ((*byte < ' ' && *byte != (unsigned char)spared) || *byte == 0x7f)
			*byte = ' ';
		else if (byte[0] == 0xc2 && byte[1] >= 0x80 && byte[1] < 0xa0)
			byte[0] = byte[1] = ' ';
	}
}

void ce_make_one_line(char *text)
{
	blank_controls(text, '\0');
}

void ce_say(const char *node, const char *kind, const char *text)
{
	char host[HOST_NAME_MAX + 1] = "this node";
	CE_AUTO_FREE char *piece = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&piece, &size);

	if (out == NULL)
		return;
	if (node == NULL || node[0] == '\0') {
		if (gethostname(host, sizeof host) == 0)
			host[sizeof host - 1] = '\0';
		node = host;
	}
	do {
		size_t length = strcspn(text, "\n");
		if (is_finished(text))
			fprintf(out, "%.*s\n", (int)length, text);
		else
			fprintf(out, "ce: %s: %s: %.*s\n", kind, node, (int)length, text);
		text += length + (text[length] == '\n');
	} while (*text != '\0');
	if (fclose(out) != 0)
		return;
	blank_controls(piece, '\n');
	ce_write_all(STDERR_FILENO, piece, size);
}

void ce_say_error(const char *node, const char *message, const char *below)
{
	CE_AUTO_FREE char *whole = NULL, *line = strdup(message);

	if (line == NULL)
		return;
	ce_make_one_line(line);
	if (asprintf(&whole, "%s\n%s", line, below) < 0)
		whole = NULL;
	ce_say(node, "error", whole != NULL ? whole : line);
}

void ce_say_here(const char *kind, const char *message, const char *below)
{
	CE_AUTO_FREE char *whole = NULL, *line = strdup(message);

	if (line == NULL)
		return;
	ce_make_one_line(line);
	int length = asprintf(&whole, "ce: %s: %s\n%s%s", kind, line, below, below[0] != '\0' ? "\n" : "");
	if (length < 0)
		whole = NULL;
	else
		ce_write_all(STDERR_FILENO, whole, (size_t)length);
}
