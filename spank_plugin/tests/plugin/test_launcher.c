#define _GNU_SOURCE
#include "plugin/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

static void join_in_a_child(struct ce_shared *shared)
{
	pid_t pid = fork();

	if (pid == 0) {
		ce_shared_join(shared);
		_exit(0);
	}
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

TEST("what tasks note is seen by slurmstepd: how many joined, the first and the last")
{
	struct ce_shared *shared = ce_shared_make();
	int64_t before = ce_now_ns();

	CHECK(shared != NULL);
	join_in_a_child(shared);
	int64_t first = shared->first_join;
	join_in_a_child(shared);
	CHECK_INT(shared->joined, 2);
	CHECK_INT(shared->first_join, first);
	CHECK(before <= first && first < shared->last_join);
}

TEST("the end is one line of JSON behind what the launcher wrote")
{
	struct ce_shared shared = { .first_join = 5, .last_join = 7, .joined = 2 };
	char text[256] = "", wanted[256];
	int trace = memfd_create("trace", MFD_CLOEXEC);

	CHECK_INT(write(trace, "{}\n", 3), 3);
	ce_shared_write(&shared, trace, "{}");
	CHECK(pread(trace, text, sizeof text - 1, 0) > 3);
	long long end = atoll(text + strlen("{}\n{\"end\":"));
	CHECK(end > 0);
	snprintf(wanted, sizeof wanted,
		 "{}\n{\"end\":%lld,\"first_join\":5,\"last_join\":7,\"joined\":2,"
		 "\"image_reads\":[{}]}\n",
		 end);
	CHECK_TEXT(text, wanted);
}
