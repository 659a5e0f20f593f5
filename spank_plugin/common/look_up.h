/* Finds the file of a command, as execvp does. */
#pragma once

/* the PATH of a task that would have none */
extern const char ce_usual_path[];

/* Return whether the errno means that the file does not exist. Others do not tell: ENOTCONN and EIO, for
 * instance, mean that the image cannot be read. */
int ce_is_absent(int reason);

/* Search a PATH for the first file of this name for which `try_file` returns 0. Return 0 and the file in
 * *found, on the heap; 1 and the reason, an errno, if there is none; -1 without memory. */
int ce_search_path(const char *path, const char *command, int (*try_file)(const char *), char **found,
		   int *reason);

/* Find a command that the user may execute, by the given PATH (NULL: the usual one). Return as
 * ce_search_path. */
int ce_look_up(const char *path, const char *command, char **found, int *reason);
