/* The last component of a path. */
#ifndef CE_PROGRAM_H
#define CE_PROGRAM_H

#include <string.h>

static inline const char *ce_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* Return whether the program was called by this name, in whatever directory. */
static inline int ce_is_called(const char *path, const char *name)
{
	return strcmp(ce_base_name(path), name) == 0;
}

#endif
