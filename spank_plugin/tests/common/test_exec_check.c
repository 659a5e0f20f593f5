/* The reason for which execve has failed. What a file can lack is tested with commands of tasks
 * (test_join.c). */
#define _GNU_SOURCE
#include "common/exec_check.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "harness.h"

/* Return the reason for a program that cannot be executed, valid until the next call. */
static const char *reason(const char *program)
{
	static char why[CE_WHY_SIZE];

	execl(program, program, (char *)NULL);
	ce_not_started(program, errno, why);
	return why;
}

TEST("a script that could not be started is reported with the interpreter that is missing")
{
	char line[512], wanted[1024];
	const char *directory = test_directory(), *python = test_path(directory, "python3");

	snprintf(line, sizeof line, "#!%s -I\n", python);
	const char *script = test_file(directory, "script", line, 0755);
	snprintf(wanted, sizeof wanted, "it needs '%s', which does not exist", python);
	CHECK_TEXT(reason(script), wanted);
	CHECK_INT(symlink("/gone/python3.11", python), 0);
	snprintf(wanted, sizeof wanted, "it needs '%s', a link to '/gone/python3.11', which does not exist",
		 python);
	CHECK_TEXT(reason(script), wanted);
}

TEST("a program that is a link to nothing is reported with the link's end")
{
	const char *python = test_path(test_directory(), "python3");

	CHECK_INT(symlink("/gone/python3.11", python), 0);
	CHECK_TEXT(reason(python), "it is a link to '/gone/python3.11', which does not exist");
}

TEST("a program that lacks nothing is reported in the words of the errno")
{
	const char *directory = test_directory();

	CHECK_TEXT(reason(test_path(directory, "nothing")), "No such file or directory");
	CHECK_TEXT(reason(test_file(directory, "script", "#!/bin/sh\n", 0644)), "Permission denied");
}
