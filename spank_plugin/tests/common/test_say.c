/* Messages that are printed once per step. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/say.h"
#include "harness.h"

TEST("only the first to report a message prints it")
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

TEST("without a directory for marks every message is printed")
{
	CHECK(ce_claim_message(-1, "1", "x"));
	CHECK(ce_claim_message(-1, "1", "x"));
	int nowhere = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(ce_claim_message(nowhere, "1", "x"));
	CHECK(ce_claim_message(nowhere, "1", "x"));
	close(nowhere);
}

static void say(const char *text, const char *below)
{
	(void)below;
	ce_say("n1", "error", text);
}

static void say_error(const char *text, const char *below)
{
	ce_say_error("n1", text, below);
}

static void say_here(const char *text, const char *below)
{
	ce_say_here("error", text, below);
}

/* Return what `print` prints, in a buffer that the next call overwrites. */
static const char *printed(void (*print)(const char *text, const char *below), const char *text,
			   const char *below)
{
	static char buffer[512];
	FILE *file = tmpfile();
	int kept = dup(STDERR_FILENO);
	size_t length = 0;

	if (file != NULL && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0) {
		print(text, below);
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

static const char *said(const char *text)
{
	return printed(say, text, "");
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

TEST("a name in a message adds neither lines nor control characters")
{
	static const char message[] = "workdir '/\x1b]0;t\x07\nce: hint: run this'",
			  below[] = "ce: hint: a\nce: see: b";

	CHECK_TEXT(printed(say_error, message, below),
		   "ce: error: n1: workdir '/ ]0;t  ce: hint: run this'\nce: hint: a\nce: see: b\n");
	CHECK_TEXT(printed(say_here, message, below),
		   "ce: error: workdir '/ ]0;t  ce: hint: run this'\nce: hint: a\nce: see: b\n");
	CHECK_TEXT(printed(say_here, "x\ny", ""), "ce: error: x y\n");
}
