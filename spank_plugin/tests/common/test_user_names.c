/* Asking ce-user who the user is; tests/unit/node/test_recorded_start.py has it with a node's real
 * sources. */
#define _GNU_SOURCE
#include "common/answers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

static const char names[] = "=\nme\n\n/home/me\n/bin/sh\n=\nus\n";

/* Return whether the user has these names according to a ce-user that is this shell script. */
static int has_names(const char *script)
{
	const char *prefix = test_directory();
	char place[512], text[1024];

	snprintf(place, sizeof place, "%s/libexec", prefix);
	(void)mkdir(place, 0755);
	snprintf(place, sizeof place, "%s/libexec/container-engine", prefix);
	(void)mkdir(place, 0755);
	snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
	test_file(place, "ce-user", text, 0755);
	return ce_user_has_names(prefix, names, strlen(names));
}

#define RIGHT "printf '=\\nme\\n\\n/home/me\\n/bin/sh\\n=\\nus\\n'"

TEST("the user has the names that ce-user prints")
{
	CHECK(has_names(RIGHT));
	CHECK(!has_names("printf '=\\nme\\n\\n/home/me\\n/bin/sh\\n=\\nthem\\n'"));
	CHECK(!has_names("printf '=\\nme\\n'"));
	CHECK(!has_names(RIGHT "; echo more"));
	CHECK(!has_names(":"));
}

TEST("a ce-user that fails, or is not there, has said nothing")
{
	CHECK(!has_names(RIGHT "; exit 1"));
	CHECK(!has_names(RIGHT "; kill -KILL $$"));
	CHECK(!has_names("cat /dev/zero"));
	CHECK(!ce_user_has_names("/not/there", names, strlen(names)));
}

TEST("ce-user has no variables of the step's, and none of its descriptors")
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char script[256];

	CHECK_INT(setenv("LD_BIND_NOW", "1", 1), 0);
	snprintf(script, sizeof script, "[ -z \"$LD_BIND_NOW\" ] && ! [ -e /proc/$$/fd/%d ] && " RIGHT, fd);
	CHECK(has_names(script));
	close(fd);
}
