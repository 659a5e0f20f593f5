/* The memory limit within which a container's tmpfs stays. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/guard_ops.h"
#include "harness.h"

static void make_directories(const char *const *names)
{
	for (; *names != NULL; names++)
		CHECK_INT(mkdir(test_path(test_directory(), *names), 0755), 0);
}

static int64_t limit_in(const char *groups)
{
	return guard_memory_limit(test_file(test_directory(), "groups", groups, 0444), test_directory());
}

TEST("the lowest limit of the memory cgroup and of those above it applies, with version 1")
{
	static const char *const names[] = { "memory", "memory/job_7", "memory/job_7/step_0", NULL };

	make_directories(names);
	test_file(test_directory(), "memory/memory.limit_in_bytes", "9223372036854771712\n", 0444);
	test_file(test_directory(), "memory/job_7/memory.limit_in_bytes", "209715200\n", 0444);
	test_file(test_directory(), "memory/job_7/step_0/memory.limit_in_bytes", "419430400\n", 0444);
	CHECK_INT(limit_in("4:memory:/job_7/step_0\n3:cpuset:/job_7\n0::/\n"), 209715200);
	CHECK_INT(limit_in("5:freezer:/job_7/step_0\n0::/\n"), INT64_MAX);
}

TEST("the lowest limit of the cgroup and of those above it applies, with version 2")
{
	static const char *const names[] = { "job_7", "job_7/step_0", "job_7/step_0/slurm", NULL };

	make_directories(names);
	test_file(test_directory(), "job_7/memory.max", "1073741824\n", 0444);
	test_file(test_directory(), "job_7/step_0/memory.max", "max\n", 0444);
	CHECK_INT(limit_in("0::/job_7/step_0/slurm\n"), 1073741824);
	CHECK_INT(limit_in("0::/job_8\n"), INT64_MAX);
}

TEST("without a list of cgroups of this namespace there is no limit")
{
	test_file(test_directory(), "memory.max", "4096\n", 0444);
	CHECK_INT(limit_in(""), INT64_MAX);
	CHECK_INT(limit_in("rubbish\n:\n::\n"), 4096);
	CHECK_INT(limit_in("0::/../job_7\n"), INT64_MAX);
	CHECK_INT(guard_memory_limit("/no/such/list", test_directory()), INT64_MAX);
}

static void share_is(const char *size, int64_t limit, const char *wanted)
{
	CE_AUTO_FREE char *share = guard_memory_share(size, limit, 1000000);

	CHECK_TEXT(share, wanted);
}

TEST("a percentage is of the limit where that is below the node's memory; a size is as it was")
{
	share_is("50%", 200000, "100000");
	share_is("50%", INT64_MAX, "50%");
	share_is("50%", 1000000, "50%");
	share_is("100%", 200000, "200000");
	char page[32];
	snprintf(page, sizeof page, "%ld", sysconf(_SC_PAGESIZE));
	share_is("1%", 0, page);
	share_is("16g", 200000, "16g");
	share_is("%", 200000, "%");
}
