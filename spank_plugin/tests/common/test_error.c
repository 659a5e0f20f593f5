#define _GNU_SOURCE
#include "common/error.h"

#include "harness.h"

TEST("a failure keeps its message and means exit code 125")
{
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(ce_fail(&err, "%s: %d", "why", 7), -1);
	CHECK_TEXT(ce_error_text(&err), "why: 7");
	CHECK_INT(err.exit_code, 125);
	ce_error_clear(&err);
}

TEST("the first failure is kept, because it is nearest to the cause")
{
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(ce_fail_code(&err, CE_EXIT_NOT_FOUND, "the cause"), -1);
	CHECK_INT(ce_fail(&err, "a consequence"), -1);
	CHECK_INT(ce_fail_code(&err, CE_EXIT_NOT_EXECUTABLE, "another"), -1);
	CHECK_TEXT(ce_error_text(&err), "the cause");
	CHECK_INT(err.exit_code, 127);
	ce_error_clear(&err);
}

TEST("an error that was cleared can be used again")
{
	struct ce_error err = CE_ERROR_INIT;

	ce_fail_code(&err, CE_EXIT_NOT_FOUND, "first");
	ce_error_clear(&err);
	CHECK(err.message == NULL);
	CHECK_INT(err.exit_code, 125);
	ce_fail(&err, "second");
	CHECK_TEXT(ce_error_text(&err), "second");
	ce_error_clear(&err);
	ce_error_clear(&err);
}

TEST("an error without a message has a fixed text")
{
	struct ce_error err = CE_ERROR_INIT;

	CHECK_TEXT(ce_error_text(&err), "out of memory while reporting an error");
}
