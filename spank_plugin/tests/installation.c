#define _GNU_SOURCE
#include "installation.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fake_spank.h"
#include "harness.h"
#include "plugin/user_part.h"

void install(const char *planner)
{
	char *script = NULL;

	(void)mkdir(test_path(test_directory(), "libexec"), 0755);
	const char *libexec = test_path(test_directory(), "libexec/container-engine");
	(void)mkdir(libexec, 0755);
	CHECK(asprintf(&script, "#!/bin/sh\n%s\n", planner) > 0);
	test_file(libexec, "plan", script, 0755);
	test_copy(test_built("fake_launcher"), libexec, "ce-guard");
	test_copy(test_built("ce-advise"), libexec, "ce-advise");
	free(script);
}

void load_user_part(void)
{
	CHECK(ce_load_user_part_from(test_built("container_engine_user.so"), NULL) != NULL);
}

const char *more_of_plugstack;

int init_plugin(void)
{
	char prefix[128], timeout[] = "start_timeout=2";
	char *argv[] = { prefix, timeout, (char *)more_of_plugstack };

	load_user_part();
	snprintf(prefix, sizeof prefix, "prefix=%s", test_directory());
	return slurm_spank_init(fake_spank(), more_of_plugstack != NULL ? 3 : 2, argv);
}
