/*
 * What newcomers try first and what works instead: commands that images do not have, and scripts of the host
 * that the container does not show.
 */
#ifndef CE_HINTS_H
#define CE_HINTS_H

#include <stddef.h>

enum { CE_SCRIPT_LINE = 1024 };

/* Return the lines to print below "command not found" (help.h), static, until the next call; special ones for commands that are
 * never in an image, or rarely, and for files of the current directory. In the container. */
const char *ce_not_found_help(const char *command);

/* The lines to print below a file of which nobody has the permission to execute it. */
extern const char ce_no_permission_help[];

/* The lines to print below a script with the line ends of Windows. */
extern const char ce_returns_help[];

/* The lines to print below a script whose interpreter does not exist. */
extern const char ce_interpreter_help[];

/* The script that an interpreter of the command line gets, if it is a file of the host. */
struct ce_script {
	const char *name; /* one of argv, relative; NULL for none */
	char directory[CE_SCRIPT_LINE / 4];
};

/* Look at the command line and the current directory. On the host, before the process joins. */
void ce_script_find(int argc, char **argv, struct ce_script *script);

/* Return 1 and a warning in `line` if the script is not found from the current directory.
 * In the container. */
int ce_script_is_elsewhere(const struct ce_script *script, char line[CE_SCRIPT_LINE]);

#endif
