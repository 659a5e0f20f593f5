/* Messages that are printed once per step. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/say.h"
#include "harness.h"

TEST("only the first who says something has news")
{
	int marks = open(test_directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(ce_claim_message(marks, "1 2", "tool: command not found"));
	CHECK(!ce_claim_message(marks, "1 2", "tool: command not found"));
	CHECK(ce_claim_message(marks, "1 2", "other: command not found"));
	CHECK(ce_claim_message(marks, "3 4", "tool: command not found"));
	close(marks);
}

TEST("numbers do not make another message of it, letters do")
{
	int marks = open(test_directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(ce_claim_message(marks, "1", "workdir '/node7'"));
	CHECK(!ce_claim_message(marks, "1", "workdir '/node12'"));
	CHECK(ce_claim_message(marks, "1", "workdir '/node'"));
	CHECK(ce_claim_message(marks, "12", "workdir '/node7'"));
	close(marks);
}

TEST("without a place for marks everything is news")
{
	CHECK(ce_claim_message(-1, "1", "x"));
	CHECK(ce_claim_message(-1, "1", "x"));
	int nowhere = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(ce_claim_message(nowhere, "1", "x"));
	CHECK(ce_claim_message(nowhere, "1", "x"));
	close(nowhere);
}

/* Return what ce_say prints for `text`, in a buffer that the next call overwrites. */
static const char *said(const char *text)
{
	static char buffer[512];
	FILE *file = tmpfile();
	int kept = dup(STDERR_FILENO);
	size_t length = 0;

	if (file != NULL && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0) {
		ce_say("n1", "error", text);
		dup2(kept, STDERR_FILENO);
		rewind(file);
		length = fread(buffer, 1, sizeof buffer - 1, file);
	}
	buffer[length] = '\0';
	close(kept);
	if (file != NULL)
		fclose(file);
	return buffer;
}

TEST("a message about a command called ce gets its prefix, a line below it keeps its own")
{
	CHECK(strcmp(said("ce: command not found\nce: hint: mount it\nce: see: ce help x"),
		     "ce: error: n1: ce: command not found\nce: hint: mount it\nce: see: ce help x\n") == 0);
	CHECK(strcmp(said("ce: error"), "ce: error: n1: ce: error\n") == 0);
}

TEST("no control character of a name in an image gets to a terminal, letters of all languages do")
{
	CHECK(strcmp(said("lib\x1b]0;title\x07.so \xc2\x9b[2J \x7f\nce: hint: \rL\xc3\xb6\xc2\xa0" "ck"),
		     "ce: error: n1: lib ]0;title .so   [2J  \nce: hint:  L\xc3\xb6\xc2\xa0" "ck\n") == 0);
	char text[] = "lib\nce: error: all is lost\xc2";
	ce_make_one_line(text);
	CHECK_TEXT(text, "lib ce: error: all is lost\xc2");
}
