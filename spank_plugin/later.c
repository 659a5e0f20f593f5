#define _GNU_SOURCE
#include "later.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <string.h>

#include "io.h"

/* Slurm's configuration as slurmstepd itself uses it. Weak: nothing promises that it is there. */
extern slurm_conf_t slurm_conf __attribute__((weak));

static const char *prolog_of_site(void)
{
	const char *path = &slurm_conf != NULL ? slurm_conf.task_prolog : NULL;

	return path != NULL && path[0] != '\0' ? path : NULL;
}

int ce_later_is_wanted(int user_has_prolog)
{
	return user_has_prolog || prolog_of_site() != NULL;
}

const char *ce_later_missing(void)
{
	const char *path = prolog_of_site();

	return path != NULL && faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 ? path : NULL;
}

/* The descriptor's number survives the execve; nobody closes it before. */
static int keep(int *fd)
{
	int number = *fd;

	*fd = -1;
	return number >= 0 && fcntl(number, F_SETFD, 0) == 0 ? number : -1;
}

/* Without it the node only speaks for itself. */
static void pass_news(int marks, const char *planned, const struct ce_variables *variables)
{
	CE_AUTO_FREE char *text = NULL;
	int kept = marks >= 0 ? fcntl(marks, F_DUPFD, 3) : -1;

	if (kept >= 0 && asprintf(&text, "%d %s", kept, planned) >= 0)
		(void)variables->set(variables->context, CE_JOIN_NEWS, text);
}

int ce_later_arrange(struct ce_container *container, char **argv, const char *program,
		     const char *planned, const struct ce_variables *variables,
		     struct ce_error *err)
{
	int user_ns = keep(&container->user_ns), mount_ns = keep(&container->mount_ns);
	int environment = keep(&container->environment);
	CE_AUTO_FREE char *text = NULL;
	char *place = strdup(program);

	if (user_ns < 0 || mount_ns < 0 || environment < 0 || place == NULL ||
	    asprintf(&text, "%d %d %d %s", user_ns, mount_ns, environment, container->workdir) < 0 ||
	    variables->set(variables->context, CE_JOIN_CONTAINER, text) < 0 ||
	    variables->set(variables->context, CE_JOIN_COMMAND, argv[0]) < 0) {
		free(place);
		return ce_fail(err, "cannot prepare the task for its container: %s",
			       strerror(errno));
	}
	pass_news(container->marks, planned, variables);
	argv[0] = place;
	return 0;
}
