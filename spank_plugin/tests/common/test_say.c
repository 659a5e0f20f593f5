/* What is said once per step. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/say.h"
#include "harness.h"

TEST("only the first who says something has news")
{
	int marks = open(test_directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(ce_claim_message(marks, "1 2", "tool: command not found"));
	CHECK(!ce_claim_message(marks, "1 2", "tool: command not found"));
	CHECK(ce_claim_message(marks, "1 2", "other: command not found"));
	CHECK(ce_claim_message(marks, "3 4", "tool: command not found"));
	close(marks);
}

TEST("numbers do not make another message of it, letters do")
{
	int marks = open(test_directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(ce_claim_message(marks, "1", "workdir '/node7'"));
	CHECK(!ce_claim_message(marks, "1", "workdir '/node12'"));
	CHECK(ce_claim_message(marks, "1", "workdir '/node'"));
	CHECK(ce_claim_message(marks, "12", "workdir '/node7'"));
	close(marks);
}

TEST("without a place for marks everything is news")
{
	CHECK(ce_claim_message(-1, "1", "x"));
	CHECK(ce_claim_message(-1, "1", "x"));
	int nowhere = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(ce_claim_message(nowhere, "1", "x"));
	CHECK(ce_claim_message(nowhere, "1", "x"));
	close(nowhere);
}
