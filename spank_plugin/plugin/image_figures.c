#define _GNU_SOURCE
#include "image_figures.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/image_figures.h"
#include "common/io.h"

static void print_text(FILE *stream, const char *text)
{
	for (; *text != '\0'; text++) {
		if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
			fprintf(stream, "\\u%04x", (unsigned char)*text);
		else
			fputc(*text, stream);
	}
}

static void print_figures(FILE *stream, const struct ce_figures *found, const char *comma)
{
	fprintf(stream,
		"%s{\"bytes\":%" PRIu64 ",\"reads\":%" PRIu64 ",\"waited_ns\":%" PRIu64
		",\"requests\":%" PRIu64 ",\"lookups\":%" PRIu64 ",\"hits\":%" PRIu64 ",\"misses\":%" PRIu64
		",\"size\":%" PRIu64 ",\"shared\":%s,\"path\":\"",
		comma, found->bytes, found->reads, found->waited_ns, found->requests, found->lookups,
		found->hits, found->misses, found->size, found->is_shared ? "true" : "false");
	print_text(stream, found->image);
	fputs("\"}", stream);
}

/* Read the figures from a descriptor. Return 0, or -1 if it is not a memory file of figures. */
static int read_figures(int fds, const char *name, struct ce_figures *found)
{
	char link[sizeof CE_FIGURES_LINK];

	if (readlinkat(fds, name, link, sizeof link) != sizeof link - 1 ||
	    memcmp(link, CE_FIGURES_LINK, sizeof link - 1) != 0)
		return -1;
	CE_AUTO_FD file = openat(fds, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	int is_whole = pread(file, found, sizeof *found, 0) == sizeof *found &&
		       memchr(found->image, '\0', sizeof found->image) != NULL;
	return is_whole ? 0 : -1;
}

char *ce_figures_text(long guard)
{
	char path[64], *text = NULL;
	const char *name, *comma = "";
	struct ce_figures found;
	size_t size;
	FILE *stream = open_memstream(&text, &size);

	if (stream == NULL)
		return NULL;
	snprintf(path, sizeof path, "/proc/%ld/fd", guard);
	CE_AUTO_DIR *fds = opendir(path);
	while ((name = ce_next_name(fds)) != NULL) {
		if (read_figures(dirfd(fds), name, &found) < 0)
			continue;
		print_figures(stream, &found, comma);
		comma = ",";
	}
	(void)fclose(stream);
	return text;
}
