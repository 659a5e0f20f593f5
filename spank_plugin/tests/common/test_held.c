#include "common/held.h"

#include <stdlib.h>

#include "harness.h"

TEST("variables that choose code are held and taken back, and others are neither")
{
	static char audit[] = "LD_AUDIT=/a=b", env[] = "ENV=", other[] = "ENVIRONMENT=x", nameless[] = "=x=1";
	char *held[] = { audit, nameless, env, other, NULL };

	CHECK_INT(ce_hold(held), 0);
	CHECK_TEXT(held[0], CE_HELD "LD_AUDIT=/a=b");
	CHECK_TEXT(held[1], CE_HELD "ENV=");
	CHECK_TEXT(held[2], "ENVIRONMENT=x");
	CHECK(held[3] == NULL);
	free(held[0]);
	free(held[1]);
	CHECK_INT(setenv(CE_HELD "LD_AUDIT", "/a=b", 1), 0);
	CHECK_INT(setenv(CE_HELD "ENV", "", 1), 0);
	CHECK_INT(ce_take_back(), 0);
	CHECK_TEXT(getenv("LD_AUDIT"), "/a=b");
	CHECK_TEXT(getenv("ENV"), "");
	CHECK(getenv(CE_HELD "LD_AUDIT") == NULL);
	CHECK_INT(ce_take_back(), 0);
}

TEST("the host's PATH is there for as long as it is exchanged")
{
	CHECK_INT(setenv("PATH", "/of/host", 1), 0);
	CHECK_INT(ce_exchange_path(), 0);
	CHECK_TEXT(getenv("PATH"), "/of/host");
	CHECK_INT(setenv(CE_HELD "PATH", "/of/container", 1), 0);
	CHECK_INT(ce_take_back(), 0);
	CHECK_TEXT(getenv("PATH"), "/of/container");
	CHECK_INT(ce_exchange_path(), 0);
	CHECK_TEXT(getenv("PATH"), "/of/host");
	CHECK_INT(ce_exchange_path(), 0);
	CHECK_TEXT(getenv("PATH"), "/of/container");
	ce_forget_path();
	CHECK_INT(ce_exchange_path(), 0);
	CHECK_TEXT(getenv("PATH"), "/of/container");
}
