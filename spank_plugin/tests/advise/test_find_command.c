/* Commands that are found, and why others are not. */
#define _GNU_SOURCE
#include "advise/advise.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advise/advise.h"
#include "common/exec_check.h"
#include "common/io.h"
#include "generated/help.h"
#include "harness.h"

static struct ce_error err = CE_ERROR_INIT;

static void finds(const char *path, const char *command, const char *wanted)
{
	char *found;

	CHECK_INT(ce_find_command(path, command, &found, &err), 0);
	CHECK_TEXT(found, wanted);
	free(found);
}

static void refuses(const char *path, const char *command, int code, const char *why)
{
	char *found;

	CHECK_INT(ce_find_command(path, command, &found, &err), -1);
	CHECK(found == NULL);
	CHECK_INT(err.exit_code, code);
	CHECK_TEXT(ce_error_text(&err), why);
	ce_error_clear(&err);
}

static void hints(const char *path, const char *command, const char *below)
{
	char *found;

	CHECK_INT(ce_find_command(path, command, &found, &err), -1);
	CHECK_TEXT(err.below, below);
	ce_error_clear(&err);
}

/* Make a directory with a/tool (not executable), b/tool (a directory), c/tool (a program), and return its
 * path. */
static const char *make_tools(void)
{
	const char *top = test_directory();
	static const char *const names[] = { "a", "b", "c" };

	for (size_t i = 0; i < 3; i++)
		CHECK_INT(mkdir(test_path(top, names[i]), 0755), 0);
	test_file(top, "a/tool", "", 0644);
	CHECK_INT(mkdir(test_path(top, "b/tool"), 0755), 0);
	test_file(top, "c/tool", "", 0755);
	CHECK_INT(chdir(top), 0);
	return top;
}

TEST("the first program of this name on PATH is found, whatever other files come before it")
{
	make_tools();
	finds("nowhere:a:b:c", "tool", "c/tool");
	finds("c/:a", "tool", "c//tool");
	finds("/nowhere:c", "tool", "c/tool");
}

TEST("an empty element of PATH is the current directory")
{
	CHECK_INT(chdir(test_path(make_tools(), "c")), 0);
	finds("", "tool", "./tool");
	finds(":/nowhere", "tool", "./tool");
	finds("/nowhere:", "tool", "./tool");
	finds("/nowhere::/nowhere", "tool", "./tool");
}

TEST("without PATH the usual directories are searched")
{
	struct stat st;
	char *found;

	CHECK_INT(ce_find_command(NULL, "sh", &found, &err), 0);
	CHECK_INT(stat(found, &st), 0);
	CHECK_INT(found[0], '/');
	free(found);
}

TEST("a command that is nowhere is 127, as in the shell")
{
	make_tools();
	refuses("a:b:c", "toool", 127, "toool: command not found in the container");
	refuses("", "toool", 127, "toool: command not found in the container");
	refuses("c", "c/none", 127, "c/none: command not found in the container");
	refuses("c", "c/tool/x", 127, "c/tool/x: command not found in the container");
	refuses("c", "", 127, "'': command not found in the container");
}

TEST("for a command that is a dangling symlink, the missing target is named")
{
	make_tools();
	CHECK_INT(symlink("/gone/bin/python3.11", "c/python3"), 0);
	CHECK_INT(symlink("python3", "c/python"), 0);
	CHECK_INT(symlink("circle", "c/circle"), 0);
	CHECK_INT(symlink("tool", "c/link"), 0);
	refuses("a:c:b", "python", 127, "python: command not found in the container: 'c/python' is a link to "
					"'/gone/bin/python3.11', which does not exist");
	refuses("", "c/python3", 127,
		"c/python3: command not found in the container: 'c/python3' is a link to "
		"'/gone/bin/python3.11', which does not exist");
	hints("c", "python", CE_HELP_COMMAND_NOT_FOUND);
	hints("", "c/python3", CE_HELP_COMMAND_NOT_FOUND);
	refuses("c", "circle", 127, "circle: command not found in the container");
	finds("c", "link", "c/link");
	/* a later one on PATH that exists is taken */
	test_file(test_directory(), "b/python", "", 0755);
	finds("c:b", "python", "b/python");
	test_file(test_directory(), "b/pip", "#!python\n", 0755);
	finds("b", "pip", "b/pip");
}

#define RETURN \
	": cannot be executed in the container: its lines end with a carriage return, as on Windows, which " \
	"becomes a part of the interpreter's name"

TEST("for a script with the line ends of Windows the cause is named")
{
	make_tools();
	test_file(test_directory(), "c/plain", "#!/bin/sh\r\necho\r\n", 0755);
	test_file(test_directory(), "c/env", "#! /usr/bin/env python3\r\n", 0755);
	refuses("c", "plain", 126, "plain" RETURN);
	refuses("c", "c/env", 126, "c/env" RETURN);
	/* the interpreter reads this line itself, and accepts the carriage return */
	test_file(test_directory(), "c/option", "#!/bin/sh -e\r\n", 0755);
	test_file(test_directory(), "c/later", "#!/bin/sh\necho\r\n", 0755);
	finds("c", "option", "c/option");
	finds("c", "later", "c/later");
}

TEST("a script whose interpreter is a link to nothing names both")
{
	char line[512], wanted[1024], long_name[CE_LOADER_SIZE];
	const char *top = make_tools();

	CHECK_INT(symlink("/gone/python3.11", "c/python"), 0);
	snprintf(line, sizeof line, "#!%s/c/python\n", top);
	test_file(top, "c/pip", line, 0755);
	snprintf(wanted, sizeof wanted, "pip: cannot be executed in the container: it needs '%s/c/python', a "
					"link to '/gone/python3.11', which does not exist", top);
	refuses("c", "pip", 126, wanted);
	/* a link whose target is too long to examine is reported as absent, without its target */
	memset(long_name, 'x', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';
	CHECK_INT(symlink(long_name, "c/long"), 0);
	refuses("c", "long", 127, "long: command not found in the container");
}

TEST("a command that is there and cannot be executed is 126")
{
	make_tools();
	refuses("a", "tool", 126, "tool: cannot be executed in the container: Permission denied");
	refuses("b", "tool", 126, "tool: cannot be executed in the container: Permission denied");
	refuses("c", "./a/tool", 126,
		"./a/tool: cannot be executed in the container: it has no permission to be executed");
	refuses("c", "b/", 126, "b/: cannot be executed in the container: it is a directory");
}

static Elf64_Ehdr own_head(void)
{
	Elf64_Ehdr file = { 0 };
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_INT(read(fd, &file, sizeof file), sizeof file);
	close(fd);
	return file;
}

static void write_program(const char *path, const void *content, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

	CHECK(fd >= 0);
	CHECK_INT(write(fd, content, size), size);
	close(fd);
}

TEST("a program whose interpreter or loader is not there is 126 and names it")
{
	char head[256] = "";
	Elf64_Ehdr file = own_head();
	Elf64_Phdr part = { .p_type = PT_INTERP, .p_offset = sizeof file + sizeof part,
			    .p_filesz = sizeof "/no/loader" };
	const char *top = make_tools();

	test_file(top, "c/script", "#! /no/such/python3 -I\n", 0755);
	refuses("c", "script", 126, "script: cannot be executed in the container: it needs "
				    "'/no/such/python3', which does not exist");
	hints("c", "script", ce_interpreter_help);
	test_file(top, "c/good", "#!/bin/sh\n", 0755);
	finds("c", "good", "c/good");
	test_file(top, "c/relative", "#!sh\n", 0755);
	finds("c", "relative", "c/relative");
	test_file(top, "c/short", "#!", 0755);
	finds("c", "short", "c/short");
	file.e_phoff = sizeof file;
	file.e_phnum = 1;
	memcpy(head, &file, sizeof file);
	memcpy(head + sizeof file, &part, sizeof part);
	strcpy(head + sizeof file + sizeof part, "/no/loader");
	write_program("c/program", head, sizeof head);
	refuses("c", "program", 126, "program: cannot be executed in the container: it needs "
				     "'/no/loader', which does not exist");
	hints("c", "program", CE_HELP_COMMAND_NOT_EXECUTABLE);
	CHECK_INT(truncate("c/program", sizeof file + sizeof part), 0);
	finds("c", "program", "c/program");
}

TEST("a program for another processor is 126 and says which, and so is a script that needs one")
{
	Elf64_Ehdr file = own_head();
	const char *here = file.e_machine == EM_AARCH64 ? "arm64" : "amd64", *top = make_tools();
	char line[512], wanted[512];

	/* a processor for which there is no emulator */
	file.e_machine = EM_IA_64;
	write_program("c/other", &file, sizeof file);
	snprintf(wanted, sizeof wanted,
		 "other: cannot be executed in the container: it is for another processor "
		 "(ELF machine 50), the node is %s",
		 here);
	refuses("c", "other", 126, wanted);
	snprintf(line, sizeof line, "#!%s/c/other\n", top);
	test_file(top, "c/script", line, 0755);
	snprintf(wanted, sizeof wanted,
		 "script: cannot be executed in the container: it is for another processor "
		 "(ELF machine 50), the node is %s",
		 here);
	refuses("c", "script", 126, wanted);
	/* a header in the other byte order is read in that order */
	file.e_ident[EI_DATA] = file.e_ident[EI_DATA] == ELFDATA2LSB ? ELFDATA2MSB : ELFDATA2LSB;
	file.e_machine = __builtin_bswap16(EM_IA_64);
	write_program("c/other", &file, sizeof file);
	refuses("c", "script", 126, wanted);
	/* files that the kernel may be able to run pass the check */
	file = own_head();
	file.e_ident[EI_CLASS] = ELFCLASS32;
	file.e_machine = EM_386;
	write_program("c/small", &file, sizeof file);
	finds("c", "small", "c/small");
}

TEST("a program whose bytes cannot be read cannot be started")
{
	char why[CE_WHY_SIZE] = "";

	/* nothing is mapped at address 0, so reading it returns EIO */
	CHECK_INT(ce_cannot_start("/proc/self/mem", why), CE_UNFIT);
	CHECK_TEXT(why, "it cannot be read: Input/output error");
	CHECK_INT(ce_cannot_start("/nowhere", why), 0);
}

TEST("a command that cannot be looked at is not said to be absent")
{
	char name[300];

	make_tools();
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	CE_AUTO_FREE char *message = NULL;
	if (asprintf(&message, "%s: cannot be executed in the container: File name too long", name) < 0)
		message = NULL;
	refuses("a:b", name, 126, message);
}

TEST("a name with a slash is not searched for")
{
	make_tools();
	finds("/nowhere", "c/tool", "c/tool");
	refuses("c", "./tool", 127, "./tool: command not found in the container");
}

TEST("names with spaces, percent signs and newlines are found as they are")
{
	make_tools();
	test_file(test_directory(), "c/a b%s\n", "", 0755);
	finds("c", "a b%s\n", "c/a b%s\n");
}

TEST("a PATH of a MiB works")
{
	enum { SIZE = 1 << 20 };
	CE_AUTO_FREE char *path = malloc(SIZE + 1);

	make_tools();
	CHECK(path != NULL);
	memset(path, 'x', SIZE);
	path[SIZE - 2] = ':';
	path[SIZE - 1] = 'c';
	path[SIZE] = '\0';
	finds(path, "tool", "c/tool");
}
