/* The beginning of a program: open streams, the name by which it was called, and where it is installed. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* Open /dev/null where a standard stream is closed, as libc does for setuid programs. What the program opens
 * later gets other numbers, so nothing takes a socket or a file for a stream. Without /dev/null change
 * nothing. Each program calls this first. */
static inline void ce_open_standard_streams(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			return;
	}
}

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

#define CE_LIBEXEC "/libexec/container-engine/"

/* Return where the engine is installed, on the heap: this program is PREFIX/libexec/container-engine/NAME.
 * Return NULL with errno, which is EINVAL if it is elsewhere. */
static inline char *ce_find_prefix(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	size_t tail = strlen(CE_LIBEXEC);

	if (length < 0)
		return NULL;
	path[length] = '\0';
	size_t size = (size_t)(ce_base_name(path) - path);
	if (size > tail && strncmp(path + size - tail, CE_LIBEXEC, tail) == 0)
		return strndup(path, size - tail);
	errno = EINVAL;
	return NULL;
}
