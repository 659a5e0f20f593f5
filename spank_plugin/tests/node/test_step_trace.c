/* The place of the trace of a step that joins, and the cases in which it is not written. */
#define _GNU_SOURCE
#include "node/step_trace.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

static struct ce_step_memo memo = { .trace_begin = "{", .trace_plan = "" };

static int opens(const char *directory, const char *step)
{
	struct ce_step_trace trace;
	char block[128];
	int size = snprintf(block, sizeof block, "SLURM_JOB_ID=7%cSLURM_STEP_ID=%s%cSLURM_NODEID=1%c", 0,
			    step, 0, 0);
	const struct ce_step_env env = { block, (size_t)size };

	memo.traces = directory;
	int rc = ce_step_trace_open(&trace, &memo, &env, "n1");
	ce_step_trace_close(&trace);
	return rc;
}

TEST("the trace of a step that joins is a new file below a directory of the user's alone")
{
	const char *directory = test_directory(), *step = test_path(directory, "7.1");
	struct stat found;

	CHECK_INT(opens(directory, "1"), 0);
	CHECK_INT(stat(test_path(directory, "7.1/n1.json"), &found), 0);
	CHECK_INT(found.st_mode & 0777, 0600);
	CHECK_INT(stat(step, &found), 0);
	CHECK_INT(found.st_mode & 0777, 0700);
	/* this step has a trace already */
	CHECK_INT(opens(directory, "1"), -1);
}

TEST("a step's directory that others may write, or a symlink, is not used for its trace")
{
	const char *directory = test_directory(), *step = test_path(directory, "7.1");

	CHECK_INT(mkdir(step, 0700), 0);
	CHECK_INT(chmod(step, 0720), 0);
	CHECK_INT(opens(directory, "1"), -1);
	CHECK_INT(chmod(step, 0702), 0);
	CHECK_INT(opens(directory, "1"), -1);
	CHECK_INT(rmdir(step), 0);
	CHECK_INT(symlink("/tmp", step), 0);
	CHECK_INT(opens(directory, "1"), -1);
	CHECK_INT(unlink(step), 0);
	CHECK_INT(opens(directory, "1"), 0);
}

TEST("a step's directory of another user is not used for its trace")
{
	const char *directory = test_directory();

	test_needs_root();
	CHECK_INT(mkdir(test_path(directory, "7.1"), 0700), 0);
	CHECK_INT(chown(test_path(directory, "7.1"), 54321, 54321), 0);
	CHECK_INT(opens(directory, "1"), -1);
}

TEST("the number of a step leads nowhere else")
{
	const char *directory = test_directory();

	CHECK_INT(mkdir(test_path(directory, "7."), 0700), 0);
	CHECK_INT(opens(directory, "/../x"), -1);
	CHECK_INT(opens(directory, ""), -1);
	CHECK(access(test_path(directory, "x"), F_OK) < 0);
}
