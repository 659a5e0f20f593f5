/* The reader of the answer with which a step joins a container; tests/unit/node/test_recorded_join.py tests
 * writer and reader together. */
#define _GNU_SOURCE
#include "guard/step_answers.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/site_rules.h"
#include "guard/step_trace.h"
#include "harness.h"

#define KEY "0123456789abcdef"
static const char fields[] = "1\0/i.sqsh\0"
			     "4\0A=1\0\0"
			     "6\0B=1\0C\0\0"
			     "/work\0/t\0{\"version\":1,\0"
			     "\"environment\":\"e\",\"variables\":{},\0/data\0"
			     "2\0TOKEN\0KEY";

/* Read a result of these bytes. Return as ce_join_read does. */
static int reads(const char *bytes, size_t size, struct ce_join_answer *join)
{
	return ce_join_read((struct ce_fields){ bytes, bytes + size, 0 }, join);
}

TEST("the fact of the planner names the container that a step joins")
{
	static const char *const doubts[] = { "", KEY, "/k", KEY "k", KEY "0/k", "0123456789abcde/k",
					      "0123456789ABCDEF/k", "0123456789abcde./k" };
	struct ce_wanted wanted;

	CHECK_INT(ce_join_wanted(KEY "/k/x y", &wanted), 0);
	CHECK_TEXT(wanted.key, KEY);
	CHECK_TEXT(wanted.directory, "/k/x y");
	for (size_t i = 0; i < sizeof doubts / sizeof doubts[0]; i++)
		CHECK_INT(ce_join_wanted(doubts[i], &wanted), -1);
}

TEST("an answer for joining is read as it was written")
{
	struct ce_join_answer join;

	CHECK_INT(reads(fields, sizeof fields, &join), 0);
	CHECK_INT(join.block_size, 4);
	CHECK_INT(join.records_size, 6);
	CHECK_TEXT(join.workdir, "/work");
	CHECK_TEXT(join.trace.directory, "/t");
	CHECK(ce_join_knows(&join, "/i.sqsh"));
	CHECK(!ce_join_knows(&join, "/work"));
}

TEST("an answer for joining is refused if it lacks its end or has more")
{
	struct ce_join_answer join;
	char longer[sizeof fields + 1] = { 0 };

	for (size_t size = 0; size < sizeof fields; size++)
		CHECK_INT(reads(fields, size, &join), -1);
	memcpy(longer, fields, sizeof fields);
	CHECK_INT(reads(longer, sizeof longer, &join), -1);
}

TEST("of two variables with one name the later one is used")
{
	static const char entries[] = "A=1\0AB=2\0A=3\0B\0";
	const struct ce_step_env env = { entries, sizeof entries };

	CHECK_TEXT(ce_step_variable(&env, "A"), "3");
	CHECK_TEXT(ce_step_variable(&env, "B"), "");
	CHECK(ce_step_variable(&env, "C") == NULL);
}

TEST("a site's rule is found wherever it is written")
{
	const char *prefix = test_directory();

	CHECK(!ce_site_may_rule(prefix));
	CHECK_INT(mkdir(test_path(prefix, "etc"), 0755), 0);
	CHECK_INT(mkdir(test_path(prefix, "etc/container-engine"), 0755), 0);
	test_file(prefix, "etc/container-engine/config.toml", "trace_dir = \"/t\"\n", 0644);
	CHECK(!ce_site_may_rule(prefix));
	test_file(prefix, "etc/container-engine/config.toml", "policy.mount_sources = []\n", 0644);
	CHECK(ce_site_may_rule(prefix));
	test_file(prefix, "etc/container-engine/config.toml", "policy.\"mount\\u005fsources\" = []\n", 0644);
	CHECK(ce_site_may_rule(prefix));
}

TEST("a configuration that cannot be read may have a rule")
{
	const char *prefix = test_directory();
	const char *place = test_path(prefix, "etc/container-engine");

	CHECK_INT(mkdir(test_path(prefix, "etc"), 0755), 0);
	CHECK_INT(mkdir(place, 0755), 0);
	const char *file = test_path(place, "config.toml"), *more = test_path(place, "conf.d");
	CHECK_INT(symlink(file, file), 0);
	CHECK(ce_site_may_rule(prefix));
	CHECK_INT(unlink(file), 0);
	CHECK_INT(mkdir(file, 0755), 0);
	CHECK(ce_site_may_rule(prefix));
	CHECK_INT(rmdir(file), 0);
	CHECK(!ce_site_may_rule(prefix));
	test_file(place, "conf.d", "", 0644);
	CHECK(ce_site_may_rule(prefix));
	CHECK_INT(unlink(more), 0);
	CHECK(!ce_site_may_rule(prefix));
}

static void rules_in_etc(void)
{
	const char *prefix = test_directory();

	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_INT(mount("tmpfs", "/etc", "tmpfs", 0, NULL), 0);
	CHECK(!ce_site_may_rule(prefix));
	CHECK_INT(mkdir("/etc/container-engine", 0755), 0);
	test_file("/etc/container-engine", "config.toml", "policy.site_images_only = true\n", 0644);
	CHECK(ce_site_may_rule(prefix));
	_exit(0);
}

TEST("so is one in /etc")
{
	test_needs_root();
	CHECK_INT(test_in_child(rules_in_etc), 0);
}

TEST("the trace of a step that joins is one line")
{
	struct ce_join_answer join;
	struct ce_step_trace trace;
	char text[1024] = "";
	static const char entries[] =
		"SLURM_JOB_ID=7\0SLURM_STEP_ID=2\0SLURM_NODEID=0\0SLURM_CE_PLANNED=5 6\0";
	const struct ce_step_env env = { entries, sizeof entries };
	struct ce_phases phases = { .count = 0 };

	CHECK_INT(reads(fields, sizeof fields, &join), 0);
	join.trace.directory = test_directory();
	CHECK_INT(ce_step_trace_open(&trace, &join.trace, &env, "n1"), 0);
	ce_phase_begin(&phases, "launch", 10);
	ce_phases_of_guard(&phases, "keep 1\njoined 2\nready 3\n");
	ce_phase_begin(&phases, "answer", 20);
	ce_step_trace_write(&trace, &env, &phases);
	ce_step_trace_close(&trace);
	FILE *file = fopen(test_path(join.trace.directory, "7.2/n1.json"), "re");
	CHECK(file != NULL && fgets(text, sizeof text, file) != NULL);
	fclose(file);
	CHECK_CONTAINS(text, "{\"version\":1,\"job\":\"7\",\"step\":\"2\",\"array\":\"\",\"host\":");
	CHECK_CONTAINS(text, "\"environment\":\"e\",\"variables\":{},"
			     "\"phases\":[{\"name\":\"plan\",\"begin\":5,\"end\":6},"
			     "{\"name\":\"launch\",\"begin\":10,\"end\":20},"
			     "{\"name\":\"answer\",\"begin\":20,\"end\":");
	CHECK_CONTAINS(text, "}],\"error\":\"\"}\n");
	/* the trace of an earlier step with this number, which only the launcher removes */
	CHECK_INT(ce_step_trace_open(&trace, &join.trace, &env, "n1"), -1);
	ce_step_trace_close(&trace);
}
