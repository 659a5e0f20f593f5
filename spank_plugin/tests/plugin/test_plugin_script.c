#define _GNU_SOURCE
#include "plugin/plugin_script.h"

#include <stdio.h>

#include "harness.h"

TEST("a note is made below directories that are missing, and found only once")
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/a/b/7", test_directory());
	CHECK_INT(ce_note_take(path), 0);
	ce_note_make(path);
	CHECK_INT(ce_note_take(path), 1);
	CHECK_INT(ce_note_take(path), 0);
	CHECK_INT(ce_note_take(""), 0);
	ce_note_path((uid_t)-2, 7, path);
	CHECK_TEXT(path, "");
}
