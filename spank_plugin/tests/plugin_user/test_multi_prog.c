#define _GNU_SOURCE
#include "plugin_user/multi_prog.h"

#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* the text after the first line, which is a comment */
static const char *without_heading(const char *text)
{
	CHECK_INT(text[0], '#');
	return strchr(text, '\n') + 1;
}

static void is_preceded(const char *given, const char *wanted)
{
	struct ce_error err = CE_ERROR_INIT;
	char *copy = strdup(given), *text = copy, *argv[] = { copy, NULL, NULL };

	CHECK_INT(ce_multi_prog_prefix(&text, "/x/ce-join", &err), 0);
	CHECK_TEXT(without_heading(text), wanted);
	argv[1] = text;
	CHECK(ce_multi_prog_prefixed(2, argv));
	char *again = text;
	CHECK_INT(ce_multi_prog_prefix(&again, "/x/ce-join", &err), 0);
	CHECK(again == text);
	argv[1] = copy;
	CHECK(!ce_multi_prog_prefixed(2, argv));
	CHECK(!ce_multi_prog_prefixed(1, argv));
	free(text);
	free(copy);
}

TEST("each program gets ce-join before it, after the ranks of its line, whatever the spaces")
{
	is_preceded("0 a b\n1-3,5\t./c '%t x'\n", "0 /x/ce-join a b\n1-3,5\t/x/ce-join ./c '%t x'\n");
	is_preceded("  *   a", "  *   /x/ce-join a");
	is_preceded("\n\n0 a\n\n", "\n\n0 /x/ce-join a\n\n");
	is_preceded("0 a\r\n1 b\r\n", "0 /x/ce-join a\r\n1 /x/ce-join b\r\n");
}

TEST("lines without a program stay as they are: comments, and what Slurm refuses")
{
	is_preceded("", "");
	is_preceded("# 0 a\n  #x y\n", "# 0 a\n  #x y\n");
	is_preceded("0\n1 \n \n", "0\n1 \n \n");
}

TEST("a line after a backslash continues the one before, also across empty lines, which Slurm skips")
{
	is_preceded("0 a \\\n1 b\n2 c\n", "0 /x/ce-join a \\\n1 b\n2 /x/ce-join c\n");
	is_preceded("0 a \\\n\n1 b\n2 c\n", "0 /x/ce-join a \\\n\n1 b\n2 /x/ce-join c\n");
	is_preceded("# a \\\n1 b\n2 c\n", "# a \\\n1 b\n2 /x/ce-join c\n");
	is_preceded("0 \\\na\n", "0 /x/ce-join \\\na\n");
}

TEST("characters in the path of ce-join that Slurm interprets get a backslash")
{
	struct ce_error err = CE_ERROR_INIT;
	char given[] = "0 a", *text = given;

	CHECK_INT(ce_multi_prog_prefix(&text, "/a b/100%t/it's/\\x", &err), 0);
	CHECK_TEXT(without_heading(text), "0 /a\\ b/100\\%t/it\\'s/\\\\x a");
	free(text);
}

static int are_given(const char *line, size_t size, int argc, const char *const *given)
{
	char *argv[8] = { NULL };

	for (int i = 0; i < argc; i++)
		argv[i] = strdup(given[i]);
	int are = ce_multi_prog_given(line, size, argc, argv);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return are;
}

#define ARE_GIVEN(line, ...)                                                                   \
	are_given(line, sizeof line, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)), \
		  (const char *const[]){ __VA_ARGS__ })

TEST("a text that is not on the command line is that of a file of programs")
{
	static const char line[] = "srun\0-J\0conf\0--multi-prog\0conf\0more\0words";

	CHECK(ARE_GIVEN(line, "conf", "0 a", "more", "words"));
	CHECK(!ARE_GIVEN(line, "conf", "more", "words"));
	CHECK(!ARE_GIVEN(line, "conf", "0 a", "more"));
	CHECK(!ARE_GIVEN(line, "conf"));
	CHECK(!ARE_GIVEN(line, "/full/conf", "0 a", "more", "words"));
}

TEST("an argument that looks like the option is an argument, and so is one that is the command's name")
{
	CHECK(!ARE_GIVEN("srun\0a\0--multi=1\0b", "a", "--multi=1", "b"));
	CHECK(!ARE_GIVEN("srun\0a\0--multi=1\0b", "/full/a", "--multi=1", "b"));
	CHECK(!ARE_GIVEN("srun\0--multi-prog\0a\0a", "a", "a"));
	CHECK(ARE_GIVEN("srun\0--multi-prog\0a\0a", "a", "0 b", "a"));
}

TEST("the command of a component ends where the next one begins")
{
	static const char line[] = "srun\0--mul\0one\0x\0:\0--mul\0two";

	CHECK(ARE_GIVEN(line, "one", "0 a", "x"));
	CHECK(ARE_GIVEN(line, "two", "0 a"));
	CHECK(!ARE_GIVEN(line, "one", "x"));
}
