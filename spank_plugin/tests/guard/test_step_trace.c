/* The place of the trace of a step that joins, and the cases in which it is not written. */
#define _GNU_SOURCE
#include "guard/step_trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

static const char stems[] = "2\0TOKEN\0KEY", mounts[] = "/data";
static struct ce_trace_parts parts = { NULL, "{", "", mounts, { stems, stems + sizeof stems, 0 } };

/* Open the trace of a step with a further variable. */
static int opens_with(const char *directory, const char *step, const char *variable)
{
	struct ce_step_trace trace;
	char block[128];
	int size = snprintf(block, sizeof block, "SLURM_JOB_ID=7%cSLURM_STEP_ID=%s%cSLURM_NODEID=1%c%s%c", 0,
			    step, 0, 0, variable, 0);
	const struct ce_step_env env = { block, (size_t)size };

	parts.directory = directory;
	int rc = ce_step_trace_open(&trace, &parts, &env, "n1");
	ce_step_trace_close(&trace);
	return rc;
}

static int opens(const char *directory, const char *step)
{
	return opens_with(directory, step, "A=1");
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

TEST("a line that would show the value of a variable that may be a secret is not written")
{
	const char *directory = test_directory();

	CHECK_INT(opens_with(directory, "1", "MY_TOKEN=other"), 0);
	CHECK_INT(opens_with(directory, "2", "TOKEN="), 0);
	CHECK_INT(opens_with(directory, "3", "my_token=data"), -1);
	CHECK_INT(opens_with(directory, "3", "API_KEY_OF_ME=data"), -1);
	CHECK_INT(opens_with(directory, "3", "n\xc3\xa4me=data"), -1);
	CHECK_INT(opens_with(directory, "3", "X=data"), 0);
	/* without traces nothing is shown */
	CHECK_INT(opens_with("", "4", "my_token=data"), 0);
}

/* Make the traces of `count` steps, the first one the oldest. */
static void make_steps(const char *directory, int count)
{
	int place = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[32], file[64];

	for (int i = 0; i < count; i++) {
		const struct timespec times[2] = { { 1000 + i, 0 }, { 1000 + i, 0 } };
		snprintf(name, sizeof name, "%d.0", 1000 + i);
		snprintf(file, sizeof file, "%s/n1.json", name);
		CHECK_INT(mkdirat(place, name, 0700), 0);
		CHECK_INT(mknodat(place, file, S_IFREG | 0600, 0), 0);
		CHECK_INT(utimensat(place, name, times, 0), 0);
	}
	close(place);
}

/* Start the step 7.1 of so many nodes on its first one, and write its trace. */
static int write_first(const char *directory, int nodes)
{
	char block[128];
	int size = snprintf(block, sizeof block,
			    "SLURM_JOB_ID=7%cSLURM_STEP_ID=1%cSLURM_NODEID=0%cSLURM_STEP_NUM_NODES=%d%c", 0,
			    0, 0, nodes, 0);
	const struct ce_step_env env = { block, (size_t)size };
	const struct ce_phases phases = { .count = 0 };
	struct ce_step_trace trace;

	parts.directory = directory;
	int rc = ce_step_trace_open(&trace, &parts, &env, "n1");
	ce_step_trace_write(&trace, &env, &phases);
	ce_step_trace_close(&trace);
	return rc;
}

static int exists(const char *directory, const char *name)
{
	struct stat found;

	return lstat(test_path(directory, name), &found) == 0;
}

TEST("the trace has the settings that Slurm gave to the step")
{
	static const char block[] = "SLURM_NODEID=0\0SLURM_JOB_PARTITION=all\0SLURM_STEP_ID=1\0"
				    "SLURM_CPUS_PER_TASK=2";
	const struct ce_step_env env = { block, sizeof block };
	struct ce_step_trace trace;

	parts.directory = test_directory();
	CHECK_INT(ce_step_trace_open(&trace, &parts, &env, "n1"), 0);
	CHECK_CONTAINS(trace.line,
		       "\"slurm\":{\"SLURM_JOB_PARTITION\":\"all\",\"SLURM_CPUS_PER_TASK\":\"2\"},");
	ce_step_trace_close(&trace);
}

TEST("a start among too many traces removes the oldest, and keeps 200 with its own")
{
	const char *directory = test_directory();

	make_steps(directory, 256);
	CHECK_INT(symlink("/tmp", test_path(directory, "1.0")), 0);
	CHECK_INT(mkdir(test_path(directory, "1.of-nobody"), 0700), 0);
	CHECK_INT(write_first(directory, 2), 0);
	CHECK(exists(directory, "7.1/n1.json"));
	CHECK(!exists(directory, "1000.0"));
	CHECK(!exists(directory, "1056.0"));
	CHECK(exists(directory, "1057.0/n1.json"));
	CHECK(exists(directory, "1255.0/n1.json"));
	/* what is no step's */
	CHECK(exists(directory, "1.0"));
	CHECK(exists(directory, "1.of-nobody"));
}

TEST("after a step on thousands of nodes fewer traces are kept, as each has thousands of files")
{
	const char *directory = test_directory();

	make_steps(directory, 50);
	CHECK_INT(write_first(directory, 1000), 0);
	CHECK(!exists(directory, "1030.0"));
	CHECK(exists(directory, "1031.0"));
	CHECK_INT(unlink(test_path(directory, "7.1/n1.json")), 0);
	CHECK_INT(write_first(directory, 10000), 0);
	CHECK(!exists(directory, "1040.0"));
	CHECK(exists(directory, "1041.0"));
}

TEST("a long list of nodes is in the first node's trace alone")
{
	char block[1024], list[512];
	const char *directory = test_directory();
	struct ce_step_trace trace;

	memset(list, '7', sizeof list - 1);
	list[sizeof list - 1] = '\0';
	parts.directory = directory;
	for (int number = 0; number < 2; number++) {
		int size = snprintf(
			block, sizeof block,
			"SLURM_JOB_ID=7%cSLURM_STEP_ID=1%cSLURM_NODEID=%d%cSLURM_STEP_NODELIST=n[%s]%c", 0, 0,
			number, 0, list, 0);
		const struct ce_step_env env = { block, (size_t)size };
		CHECK_INT(ce_step_trace_open(&trace, &parts, &env, number == 0 ? "n1" : "n2"), 0);
		CHECK_INT(strstr(trace.line, list) != NULL, number == 0);
		ce_step_trace_close(&trace);
	}
}
