/*
 * Hints for what newcomers try first: commands that images do not have, and scripts of the host that are not
 * in the container.
 */
#pragma once

#include <stddef.h>

enum { CE_SCRIPT_LINE = 1024 };

/* Return the lines to print below "command not found" (help.h), valid until the next call. Commands that are
 * never or rarely in an image have lines of their own, as have files in the current directory. Call it in the
 * container. */
const char *ce_not_found_help(const char *command);

/* Return these lines with the job and the command line in the place of words that stand for them, valid until
 * the next call; `help` itself if it has none, or if `job` is no number (NULL: outside a job). */
const char *ce_help_in_job(const char *help, const char *job, char *const *argv);

/* The lines to print below the error for a file that nobody has the permission to execute. */
extern const char ce_no_permission_help[];

/* The lines to print below the error for a script with the line ends of Windows. */
extern const char ce_returns_help[];

/* The lines to print below the error for a script that its interpreter may not open. */
extern const char ce_out_of_reach_help[];

/* The lines to print below the error for a script whose interpreter does not exist. */
extern const char ce_interpreter_help[];

/* Return 1 and a warning in `line` if the command line passes to an interpreter a script that is a file of
 * the directory on the host from which the command was submitted, and does not exist in the container, from
 * the current directory there; else return 0. `directory` is a descriptor, `named` its path. */
int ce_script_is_elsewhere(int argc, char **argv, int directory, const char *named,
			   char line[CE_SCRIPT_LINE]);
