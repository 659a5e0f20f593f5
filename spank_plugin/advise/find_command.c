#define _GNU_SOURCE
#include "advise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advise.h"
#include "common/exec_check.h"
#include "common/io.h"
#include "common/look_up.h"
#include "generated/help.h"

/* Report a file that the user may not execute, or that cannot be examined. */
static int refuse_file(const char *command, int reason, struct ce_error *err)
{
	const char *why = strerror(reason);
	struct stat st;

	err->below = CE_HELP_COMMAND_NOT_EXECUTABLE;
	/* without a slash it was found somewhere on PATH */
	if (reason == EACCES && strchr(command, '/') != NULL && stat(command, &st) == 0) {
		if (S_ISDIR(st.st_mode)) {
			why = "it is a directory";
		} else if (S_ISREG(st.st_mode) && (st.st_mode & 0111) == 0) {
			why = "it has no permission to be executed";
			err->below = ce_no_permission_help;
		}
	}
	return ce_fail_code(err, CE_EXIT_NOT_EXECUTABLE, "%s: cannot be executed in the container: %s",
			    command, why);
}

/* Report why `command` cannot be run. `link` is a path at which there may be a dangling symlink, NULL for
 * none. */
static int refuse(const char *command, int reason, const char *link, struct ce_error *err)
{
	char end[CE_LOADER_SIZE];

	if (!ce_is_absent(reason))
		return refuse_file(command, reason, err);
	err->below = CE_HELP_COMMAND_NOT_FOUND;
	if (link != NULL && ce_leads_nowhere(link, end))
		return ce_fail_code(err, CE_EXIT_NOT_FOUND,
				    "%s: command not found in the container: '%s' is a link to '%s', "
				    "which does not exist",
				    command, link, end);
	err->below = ce_not_found_help(command);
	return ce_fail_code(err, CE_EXIT_NOT_FOUND, "%s: command not found in the container",
			    command);
}

/* Return 0 for a dangling symlink; otherwise like try_command. */
static int try_link(const char *path)
{
	char end[CE_LOADER_SIZE];

	return ce_leads_nowhere(path, end) ? 0 : ENOENT;
}

/* Return 0 if the kernel can execute *found, else -1 with the error, and free *found. Slurm would print a
 * message of its own, or report for a missing loader that the program does not exist, and end the task with
 * the error number as exit code. */
static int check_start(const char *command, char **found, struct ce_error *err)
{
	char why[CE_WHY_SIZE];

	int rc = ce_cannot_start(*found, why);
	if (rc == 0)
		return 0;
	free(*found);
	*found = NULL;
	err->below = rc == CE_DAMAGED	     ? CE_HELP_IMAGE_DAMAGED :
		     rc == CE_FOREIGN	     ? CE_HELP_IMAGE_ARCHITECTURE :
		     rc == CE_RETURNS	     ? ce_returns_help :
		     rc == CE_NO_INTERPRETER ? ce_interpreter_help :
		     rc == CE_OUT_OF_REACH   ? ce_out_of_reach_help :
					       CE_HELP_COMMAND_NOT_EXECUTABLE;
	return ce_fail_code(err, CE_EXIT_NOT_EXECUTABLE, "%s: cannot be executed in the container: %s",
			    command, why);
}

int ce_find_command(const char *path, const char *command, char **found, struct ce_error *err)
{
	int reason, ignored, has_slash = strchr(command, '/') != NULL;
	CE_AUTO_FREE char *link = NULL;
	int rc = ce_look_up(path, command, found, &reason);

	if (rc == 0)
		return check_start(command, found, err);
	if (command[0] == '\0')
		return refuse("''", ENOENT, NULL, err);
	if (rc > 0 && !has_slash)
		rc = ce_search_path(path != NULL ? path : ce_usual_path, command, try_link, &link, &ignored);
	if (rc < 0)
		return ce_fail(err, "out of memory");
	return refuse(command, reason, has_slash ? command : link, err);
}
