/* Descriptors 0 to 2: open in every program of the engine, whatever its caller has closed. */
#pragma once

#include <fcntl.h>

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
