#define _GNU_SOURCE
#include "visit.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/io.h"

#define NAME_BEGINS "door."
enum { VISIT_S = 2, MAX_PATH_TEXT = 4096 };

static int is_control_socket(const struct dirent *entry)
{
	return strncmp(entry->d_name, NAME_BEGINS, strlen(NAME_BEGINS)) == 0;
}

void ce_visit_close(struct ce_visit *visit)
{
	ce_close_fd(&visit->guards_ns);
	for (size_t i = 0; i < visit->count; i++)
		ce_close_fd(&visit->container[i]);
	for (size_t i = 0; i < visit->image_count; i++) {
		ce_close_fd(&visit->devices[i]);
		ce_close_fd(&visit->figures[i]);
		free(visit->images[i]);
	}
	*visit = (struct ce_visit){ .guards_ns = -1 };
}

/* Keep the descriptors of the first packet. Return -1 if it has too few. */
static int take_container(struct ce_visit *visit, int fds[CE_MAX_FDS])
{
	visit->guards_ns = fds[0];
	for (size_t i = 1; i < CE_MAX_FDS && fds[i] >= 0; i++)
		visit->container[visit->count++] = fds[i];
	return visit->count >= CE_AT_UNSHARED ? 0 : -1;
}

/* Keep the FUSE device of an image's server, and the file in which it counts, if there is one. Close the
 * mount of the container's root: only a step that starts another container needs it. Return 0, or -1 for
 * anything else. */
static int take_image(struct ce_visit *visit, const char *path, size_t size, int fds[CE_MAX_FDS])
{
	char *copy = strndup(path, size);

	if (copy == NULL || strlen(copy) != size || fds[0] < 0 || fds[2] >= 0 ||
	    visit->image_count == CE_VISIT_IMAGES || strcmp(copy, ".") == 0) {
		int is_root = copy != NULL && strcmp(copy, ".") == 0 && fds[0] >= 0 && fds[1] < 0;
		free(copy);
		ce_close_all(fds);
		return is_root ? 0 : -1;
	}
	visit->images[visit->image_count] = copy;
	visit->figures[visit->image_count] = fds[1];
	visit->devices[visit->image_count++] = fds[0];
	return 0;
}

int ce_visit_read(int visitor, struct ce_visit *visit)
{
	char text[MAX_PATH_TEXT];
	int fds[CE_MAX_FDS];

	for (;;) {
		ssize_t n = ce_receive(visitor, 0, text, sizeof text, fds);
		if (n <= 0) {
			if (n == 0)
				ce_close_all(fds);
			return -1;
		}
		if (visit->count == 0) {
			if (take_container(visit, fds) < 0)
				return -1;
		} else if (n == 1 && text[0] == '\0') {
			int is_bare = fds[0] < 0;
			ce_close_all(fds);
			return is_bare ? 0 : -1;
		} else if (take_image(visit, text, (size_t)n, fds) < 0) {
			return -1;
		}
	}
}

/* Return 0 for an answer, 1 if the guard of this socket has ended, -1 if anything is doubtful. */
static int ask(const char *directory, const char *name, struct ce_visit *visit)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timeval limit = { .tv_sec = VISIT_S };
	CE_AUTO_FD visitor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, name);

	if (visitor < 0 || length < 0 || (size_t)length >= sizeof address.sun_path ||
	    setsockopt(visitor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
	    setsockopt(visitor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
		return -1;
	if (connect(visitor, (struct sockaddr *)&address, sizeof address) < 0)
		return errno == ECONNREFUSED ? 1 : -1;
	if (ce_visit_read(visitor, visit) == 0)
		return 0;
	ce_visit_close(visit);
	return -1;
}

int ce_visit_guard(const char *directory, struct ce_visit *visit)
{
	struct dirent **names = NULL;
	int count = scandir(directory, &names, is_control_socket, alphasort), rc = 1;

	*visit = (struct ce_visit){ .guards_ns = -1 };
	for (int i = 0; i < count; i++) {
		if (rc == 1)
			rc = ask(directory, names[i]->d_name, visit);
		free(names[i]);
	}
	free(names);
	return rc == 0 ? 0 : -1;
}
