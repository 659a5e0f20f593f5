/* Figures of image servers that a guard holds, as a list of JSON. */
#define _GNU_SOURCE
#include "plugin/image_figures.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/image_figures.h"
#include "common/io.h"
#include "harness.h"

/* Return the figures that this process holds. */
static const char *printed(long guard)
{
	static char text[4096];
	CE_AUTO_FREE char *found = ce_figures_text(guard);

	CHECK(found != NULL && strlen(found) < sizeof text);
	return strcpy(text, found);
}

TEST("each memory file of figures is an element, with its path as JSON has it")
{
	const struct ce_figures one = { 10, 2, 3000, 4, 5, 6, 7, 80, 1, "/a \"b\"\\\n\xc3\xa9.sqsh" };

	CHECK_TEXT(printed(getpid()), "");
	CHECK(ce_memory_file(CE_FIGURES, &one, sizeof one) >= 0);
	CHECK_TEXT(printed(getpid()),
		   "{\"bytes\":10,\"reads\":2,\"waited_ns\":3000,\"requests\":4,\"lookups\":5,"
		   "\"hits\":6,\"misses\":7,\"size\":80,\"shared\":true,"
		   "\"path\":\"/a \\u0022b\\u0022\\u005c\\u000a\xc3\xa9.sqsh\"}");
	CHECK(ce_memory_file(CE_FIGURES, &one, sizeof one) >= 0);
	CHECK_CONTAINS(printed(getpid()), "sqsh\"},{\"bytes\":10,");
}

TEST("a file of another name, size or form is left out, as is a guard that has ended")
{
	struct ce_figures endless = { .bytes = 1 };

	memset(endless.image, 'x', sizeof endless.image);
	CHECK(ce_memory_file("ce-figures2", &endless, sizeof endless) >= 0);
	CHECK(ce_memory_file(CE_FIGURES, "short", 5) >= 0);
	CHECK(ce_memory_file(CE_FIGURES, &endless, sizeof endless) >= 0);
	CHECK_TEXT(printed(getpid()), "");
	CHECK_TEXT(printed(0), "");
}
