#define _GNU_SOURCE
#include "common/pmix_root.h"

#include <stdio.h>
#include <string.h>

#include "harness.h"

static const char *offered;
static char seen[1024];

static int note(void *context, const char *name, const char *value)
{
	(void)context;
	snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s=%s;", name, value);
	return 0;
}

static const char *of_task(void *context, const char *name)
{
	(void)context;
	if (strcmp(name, "PMIX_SECURITY_MODE") == 0)
		return offered;
	return strcmp(name, "PMIX_SERVER_URI2") == 0 || strcmp(name, "PMIX_SERVER_URI41") == 0 ? "tcp4://"
											       : NULL;
}

static const struct ce_variables variables = { note, of_task, NULL };

static int as(unsigned uid, const char *modules)
{
	offered = modules;
	return ce_pmix_of_root(uid, &variables);
}

TEST("root in a container gets no address of a PMIx server that compares user numbers")
{
	CHECK_INT(as(0, "native"), 1);
	CHECK_TEXT(seen, "PMIX_SERVER_URI2=root-in-a-container;none://;"
			 "PMIX_SERVER_URI41=root-in-a-container;none://;");
}

TEST("root in a container uses what else the PMIx server offers")
{
	CHECK_INT(as(0, "munge,native,none"), 0);
	CHECK_TEXT(seen, "PMIX_MCA_psec=munge,none;");
}

TEST("nothing of PMIx changes without root or without a server")
{
	CHECK_INT(as(1000, "native"), 0);
	CHECK_INT(as(0, NULL), 0);
	CHECK_TEXT(seen, "");
}
