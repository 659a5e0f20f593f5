#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/stage.h"
#include "harness.h"

static void set_up(void)
{
	set_up_guard();
	CHECK_INT(chdir(test_directory()), 0);
	setenv("PATH", "/nowhere:/usr/bin:/bin", 1);
}

/* Create a container by this operation, with a shell as the runtime. Return the path from which the shell
 * runs, as it prints it. */
static char *runs_from(const char *way, char *runtime)
{
	char minus_c[] = "-c", script[] = "cat /proc/$$/comm; readlink /proc/$$/exe; :",
	     *args[] = { runtime, minus_c, script, NULL };
	size_t size;

	set_up();
	guard.stage = way;
	CHECK_INT(guard_op_create(&guard, args), 0);
	return ce_read_file_at(guard.log, 1000, &size);
}

TEST("crun runs from a sealed copy, so that it need not copy itself")
{
	char name[] = "sh", path[] = "/bin/sh", *runtimes[] = { name, path };

	for (int i = 0; i < 2; i++) {
		CE_AUTO_FREE char *said = runs_from("crun", runtimes[i]);
		CHECK_TEXT(said, "crun\n/memfd:crun (deleted)\n");
	}
}

TEST("Podman runs from its own file")
{
	char path[] = "/bin/sh";
	CE_AUTO_FREE char *said = runs_from("podman", path);

	CHECK_CONTAINS(said, "sh\n/");
	CHECK(strstr(said, "memfd") == NULL);
}

TEST("a site's runtime may be a script, which is executed by its name")
{
	CE_AUTO_FREE char *path =
		strdup(test_file(test_directory(), "runtime", "#!/bin/sh\necho \"$0\"\n", 0755));
	CE_AUTO_FREE char *said = runs_from("crun", path);

	said[strlen(said) - 1] = '\0';
	CHECK_TEXT(said, path);
}

TEST("a runtime that cannot be executed is reported with the reason")
{
	char missing[] = "ce-no-such-program", file[] = "/etc/passwd", *runtimes[] = { missing, file };
	const char *const why[] = { "ce-no-such-program: No such file", "/etc/passwd: Permission denied" };
	size_t size;

	for (int i = 0; i < 2; i++) {
		char *args[] = { runtimes[i], NULL };
		set_up();
		guard.stage = "crun";
		CHECK_INT(guard_op_create(&guard, args), -1);
		CE_AUTO_FREE char *said = ce_read_file_at(guard.log, 1000, &size);
		CHECK_CONTAINS(said, why[i]);
		ce_error_clear(&guard.err);
	}
}
