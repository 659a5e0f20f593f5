#define _GNU_SOURCE
#include "pmix_root.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io.h"

/* the server's addresses are in PMIX_SERVER_URI, and in variables with a version number after this name */
enum { MAX_VERSION = 99 };
/* not an address that PMIx understands: the client gives up without a connection */
static const char nowhere[] = "root-in-a-container;none://";

/* Return the list without "native", on the heap, NULL when out of memory. */
static char *without_native(const char *modules)
{
	CE_AUTO_FREE char *copy = strdup(modules);
	char *rest = NULL, *left = calloc(1, strlen(modules) + 1);

	if (copy == NULL || left == NULL) {
		free(left);
		return NULL;
	}
	for (char *one = strtok_r(copy, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
		if (strcmp(one, "native") == 0)
			continue;
		if (left[0] != '\0')
			strcat(left, ",");
		strcat(left, one);
	}
	return left;
}

static int take_address(const struct ce_variables *variables, const char *name)
{
	if (variables->get(variables->context, name) == NULL)
		return 0;
	return variables->set(variables->context, name, nowhere);
}

int ce_pmix_of_root(unsigned uid, const struct ce_variables *variables)
{
	const char *offered = variables->get(variables->context, "PMIX_SECURITY_MODE");
	char name[32];

	if (uid != 0 || offered == NULL)
		return 0;
	CE_AUTO_FREE char *modules = without_native(offered);
	if (modules == NULL)
		return -1;
	if (modules[0] != '\0')
		return variables->set(variables->context, "PMIX_MCA_psec", modules);
	int rc = take_address(variables, "PMIX_SERVER_URI");
	for (int version = 2; version <= MAX_VERSION && rc >= 0; version++) {
		snprintf(name, sizeof name, "PMIX_SERVER_URI%d", version);
		rc = take_address(variables, name);
	}
	return rc < 0 ? -1 : 1;
}
