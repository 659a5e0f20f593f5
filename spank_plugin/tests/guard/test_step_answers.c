/* The reader of the answer with which a step starts a container; tests/unit/node/test_recorded_start.py tests
 * writer and reader together, test_answers.c what all answers have in common. */
#define _GNU_SOURCE
#include "guard/step_answers.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer_text.h"
#include "common/io.h"
#include "harness.h"

#define SPECIFICATION "9\0dir\0001\0/t\0\0"
#define TEXTS "4\0A=1\0\0" "4\0B=1\0\0"
#define PLACE "/work\0" "1000\0"
#define TABLES "1\0/s/uses\0sha256-0\0" "1\0s2\0" "2\0/bin/sh\0-c\0"
#define TRACE "/t\0{\0\"e\":1,\0/data\0" "1\0TOKEN"

static const char usual[] = SPECIFICATION TEXTS PLACE TABLES TRACE;

/* Read a result of these bytes, in heap memory of exactly their size and a NUL, which the caller frees.
 * Return it if it can be read, else NULL. */
static char *reads(const char *bytes, size_t size, struct ce_start_answer *start)
{
	char *copy = calloc(1, size + 1);
	const struct ce_answer answer = { copy, { copy, copy + size, 0 } };

	CHECK(copy != NULL);
	memcpy(copy, bytes, size);
	if (ce_start_read(&answer, start) == 0)
		return copy;
	free(copy);
	return NULL;
}

static int is_read(const char *bytes, size_t size)
{
	struct ce_start_answer start;
	CE_AUTO_FREE char *text = reads(bytes, size, &start);

	return text != NULL;
}
#define IS_READ(text) is_read(text, sizeof text)

TEST("an answer for a start is read as it was written")
{
	struct ce_start_answer start;
	CE_AUTO_FREE char *text = reads(usual, sizeof usual, &start);

	CHECK(text != NULL);
	CHECK_INT(start.specification_size, 9);
	CHECK(memcmp(start.specification, "dir\0001\0/t\0", 9) == 0);
	CHECK_INT(start.block_size, 4);
	CHECK(memcmp(start.block, "A=1\0", 4) == 0);
	CHECK_INT(start.records_size, 4);
	CHECK(memcmp(start.records, "B=1\0", 4) == 0);
	CHECK_TEXT(start.workdir, "/work");
	CHECK_INT(start.timeout_ms, 1000);
	CHECK_INT(start.startup.count, 2);
	CHECK_TEXT(ce_take(&start.startup.words), "/bin/sh");
	CHECK_TEXT(ce_take(&start.startup.words), "-c");
	CHECK_TEXT(start.trace.directory, "/t");
	CHECK_TEXT(start.trace.mounts, "/data");
}

TEST("an answer for a start is refused if it lacks its end or has more")
{
	CHECK(is_read(usual, sizeof usual));
	for (size_t size = 0; size < sizeof usual; size++)
		CHECK(!is_read(usual, size));
	CHECK(!IS_READ(SPECIFICATION TEXTS PLACE TABLES TRACE "\0"));
	CHECK(!IS_READ(SPECIFICATION TEXTS PLACE TABLES TRACE "\0more"));
}

TEST("an answer for a start is refused if anything in it is impossible")
{
	CHECK(!IS_READ("0\0\0" TEXTS PLACE TABLES TRACE));
	CHECK(!IS_READ("8\0dir\0001\0/t\0\0" TEXTS PLACE TABLES TRACE));
	CHECK(!IS_READ("10\0dir\0001\0/t\0\0" TEXTS PLACE TABLES TRACE));
	CHECK(!IS_READ("-1\0dir\0001\0/t\0\0" TEXTS PLACE TABLES TRACE));
	CHECK(!IS_READ("999999999999999999\0dir\0001\0/t\0\0" TEXTS PLACE TABLES TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS "\0" "1000\0" TABLES TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS "work\0" "1000\0" TABLES TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS "/work\0" "0\0" TABLES TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS "/work\0" "-1\0" TABLES TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS "/work\0" "\0" TABLES TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS "/work\0" "86400001\0" TABLES TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS PLACE "0\0" "9\0s2\0" TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS PLACE "0\0" "x\0s2\0" TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS PLACE "0\0" "999999999999999999\0s2\0" TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS PLACE "0\0" "0\0" "9\0a\0b\0c\0d\0e\0f\0g\0h\0i\0" TRACE));
	CHECK(!IS_READ(SPECIFICATION TEXTS PLACE "0\0" "0\0" "9\0a\0" TRACE));
	CHECK(IS_READ(SPECIFICATION TEXTS PLACE "0\0" "0\0" "0\0" TRACE));
}

static const char *no_variable(const void *context, const char *name)
{
	(void)context, (void)name;
	return NULL;
}

TEST("a start is not repeated if any bit of its answer has changed, or its end is missing")
{
	static const char rest[] = "1\0f/not/there\0errno 2\0" "100\0" SPECIFICATION TEXTS PLACE TABLES TRACE
				   "\0\0" "end";
	const struct ce_query query = { "/p", 0, "{}", 2, no_variable, NULL };
	struct ce_start_answer start;
	size_t size = 0;
	struct ce_answer answer = { .text = answer_text(&query, rest, sizeof rest, &size) };

	CHECK_INT(sizeof usual, 100);
	CHECK_INT(answer_check(&query, size, &answer), 0);
	CHECK_INT(ce_start_read(&answer, &start), 0);
	for (size_t bit = 0; bit < size * 8; bit++) {
		answer.text[bit / 8] ^= (char)(1 << bit % 8);
		CHECK_INT(answer_check(&query, size, &answer), -1);
		answer.text[bit / 8] ^= (char)(1 << bit % 8);
	}
	for (size_t cut = 0; cut < size; cut++)
		CHECK_INT(answer_check(&query, cut, &answer), -1);
	free(answer.text);
}

/* Enter the port of a step into texts of 20 letters and digits; return the three after each other. */
static const char *entered(const char *table, size_t size, const char *step)
{
	static char result[128];
	char texts[3][21] = { "MASTER_PORT=20016...", "MASTER_PORT=20016...", "12345678901234567890" };
	char variables[64];
	struct ce_start_answer start = {
		.ports = { table, table + size, 0 },
		.specification = texts[0],
		.block = texts[1],
		.records = texts[2],
		.specification_size = 17,
		.block_size = 17,
		.records_size = 20,
	};
	int length = snprintf(variables, sizeof variables, "SLURM_JOB_ID=3%c%s", 0, step);
	const struct ce_step_env env = { variables, (size_t)length + 1 };
	int rc = ce_start_enter_port(&start, &env);

	snprintf(result, sizeof result, "%d %s %s %s", rc, texts[0], texts[1], texts[2]);
	return result;
}
#define ENTERED(table, step) entered(table, sizeof table, step)
#define AS_BEFORE " MASTER_PORT=20016... MASTER_PORT=20016... 12345678901234567890"

TEST("the port of the step replaces that of the step before, and nothing else")
{
	CHECK_TEXT(ENTERED("0", "A=1"), "0" AS_BEFORE);
	CHECK_TEXT(ENTERED("2\0s12\0b12", "SLURM_STEP_ID=5"),
		   "0 MASTER_PORT=20053... MASTER_PORT=20053... 12345678901234567890");
	CHECK_TEXT(ENTERED("2\0r0\0r15", "SLURM_STEP_ID=9990"),
		   "0 MASTER_PORT=20016... MASTER_PORT=20016... 20038678901234520038");
	/* not a number of the step, not an offset, not in the text, not a port */
	CHECK_TEXT(ENTERED("1\0s12", "SLURM_STEP_ID="), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s12", "SLURM_STEP_ID=x"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s12", "SLURM_STEP_ID=1000000000000000"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s12", "A=1"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0x12", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s-1", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s13", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0r16", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0r999999999999", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0r9999999999999", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s11", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
}

/* Record the use of an image in a step with these variables; return the number of links that there are
 * then. */
static int noted(const char *directory, const char *variables, size_t size)
{
	char uses[512];
	int length = snprintf(uses, sizeof uses, "1%c%s%csha256-0123456789abcdef.sqsh", 0, directory, 0);
	int links = 0;
	const struct ce_start_answer start = { .uses = { uses, uses + length + 1, 0 } };
	const struct ce_step_env env = { variables, size };

	CHECK_INT(ce_start_note_images(&start, &env), 0);
	DIR *stream = opendir(directory);
	if (stream == NULL)
		return -1;
	for (const struct dirent *entry; (entry = readdir(stream)) != NULL;)
		links += entry->d_name[0] != '.';
	closedir(stream);
	return links;
}
#define NOTED(directory, text) noted(directory, text, sizeof text)

TEST("the use of an image is noted for a job with a number, on its first node, in the store alone")
{
	const char *uses = test_path(test_directory(), "uses");

	CHECK_INT(mkdir(uses, 0755), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=../7"), 0);
	CHECK_INT(NOTED(uses, "A=7"), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_CLUSTER_NAME=/../x"), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_NODEID=1"), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_CLUSTER_NAME=c\0SLURM_NODEID=0"), 1);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_CLUSTER_NAME=c"), 1);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=8\0SLURM_CLUSTER_NAME=c"), 2);
}

TEST("the use of an image that is not in a store is not recorded here")
{
	static const char variables[] = "SLURM_JOB_ID=7";
	char uses[512];
	int length = snprintf(uses, sizeof uses, "1%c%s%cimage-of-ones-own.sqsh", 0, test_directory(), 0);
	const struct ce_start_answer start = { .uses = { uses, uses + length + 1, 0 } };
	const struct ce_step_env env = { variables, sizeof variables };

	CHECK_INT(ce_start_note_images(&start, &env), -1);
}

/* Return whether the directory of this user's answers is accepted. */
static int finds(const char *temporary)
{
	CE_AUTO_FD fd = ce_user_answers(temporary, geteuid(), "starts", false);

	return fd >= 0;
}

TEST("answers for starts are in directories that the user alone owns")
{
	char name[64];
	const char *temporary = test_directory();

	snprintf(name, sizeof name, "ce-answers-%u", (unsigned)geteuid());
	const char *answers = test_path(temporary, name), *starts = test_path(answers, "starts");
	CHECK(!finds(temporary));
	CHECK_INT(mkdir(answers, 0700), 0);
	CHECK(!finds(temporary));
	CHECK_INT(mkdir(starts, 0700), 0);
	CHECK(finds(temporary));
	CHECK_INT(chmod(starts, 0710), 0);
	CHECK(!finds(temporary));
	CHECK_INT(chmod(starts, 0700), 0);
	CHECK_INT(chmod(answers, 0701), 0);
	CHECK(!finds(temporary));
	CHECK_INT(chmod(answers, 0700), 0);
	CHECK_INT(rename(starts, test_path(answers, "aside")), 0);
	CHECK_INT(symlink("aside", starts), 0);
	CHECK(!finds(temporary));
	CHECK_INT(unlink(starts), 0);
	test_file(answers, "starts", "", 0700);
	CHECK(!finds(temporary));
	CHECK_INT(unlink(starts), 0);
	CHECK_INT(rename(test_path(answers, "aside"), starts), 0);
	CHECK(finds(temporary));
	CHECK_INT(rename(answers, test_path(temporary, "other")), 0);
	CHECK_INT(symlink("other", answers), 0);
	CHECK(!finds(temporary));
	CHECK_INT(unlink(answers), 0);
	CHECK_INT(rename(test_path(temporary, "other"), answers), 0);
	test_needs_root();
	CHECK_INT(chown(starts, 54321, 54321), 0);
	CHECK(!finds(temporary));
	CHECK_INT(chown(starts, geteuid(), getegid()), 0);
	CHECK_INT(chown(answers, 54321, 54321), 0);
	CHECK(!finds(temporary));
}
