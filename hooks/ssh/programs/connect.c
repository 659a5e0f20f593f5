/*
 * ce-connect NODE PORT [STEP]: connects `ssh NODE` from one container of a job to another.
 *
 * The ssh client's ProxyCommand (with ProxyUseFdpass): connects to the server of NODE in STEP, or in any
 * step, and passes the connected socket to the client through standard output. PORT is the requested one; if
 * that was in use, the server listens at another, which NODE has recorded in a directory that all nodes of
 * the job share. The other container may start later than this one: this program waits for it for a minute.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/io.h"

#define NODES "/opt/oci-hooks/ssh/nodes"
#define SHARED "/opt/oci-hooks/ssh/job/shared"

enum { PATIENCE_S = 60, PAUSE_MS = 100, RECORD_PATIENCE_S = 15 };

struct place {
	char port[16];
	/* the node's own host name, which Slurm's name for it need not be; "" if it is not recorded */
	char address[256];
};

/* Read the record NODES/STEP/NODE.port: "PORT ADDRESS" or "PORT". Return whether there is one. */
static int read_record(const char *node, const char *step, struct place *place)
{
	char path[512], text[300] = "";

	snprintf(path, sizeof path, NODES "/%s/%.*s.port", step, (int)strcspn(node, "./"), node);
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
	return n > 0 && sscanf(text, "%15[0-9] %255s", place->port, place->address) >= 1;
}

/* Find the node's record of `step`, or of any step if it is NULL. Return whether there is one. */
static int find_record(const char *node, const char *step, struct place *place)
{
	int found = 0;

	if (step != NULL)
		return read_record(node, step, place);
	CE_AUTO_DIR *steps = opendir(NODES);
	while (!found && (step = ce_next_name(steps)) != NULL)
		found = step[0] != '.' && read_record(node, step, place);
	return found;
}

/* Return whether this node has a directory for records, and so have the other nodes of the job. */
static int is_shared(void)
{
	return access(SHARED, F_OK) == 0;
}

/* Return a connected socket, or -1 with the reason in *why. */
static int try_connect(const char *node, const char *port, const char **why)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int rc = getaddrinfo(node, port, &hints, &found), fd = -1;

	*why = rc != 0 ? gai_strerror(rc) : NULL;
	for (const struct addrinfo *one = found; one != NULL && fd < 0; one = one->ai_next) {
		fd = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
		if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) < 0) {
			*why = strerror(errno);
			close(fd);
			fd = -1;
		}
	}
	if (found != NULL)
		freeaddrinfo(found);
	return fd;
}

/* Connect to the node, retrying for a minute. Return the socket, or -1 with the reason in *why. Another job
 * may use the requested port, so where records are shared, wait 15 seconds for the record first. */
static int reach(const char *node, const char *port, const char *step, const char **why)
{
	const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };
	int fd = -1;

	*why = "no answer";
	for (int waited_ms = 0; fd < 0 && waited_ms < PATIENCE_S * 1000; waited_ms += PAUSE_MS) {
		struct place place = { "", "" };
		int recorded = find_record(node, step, &place);
		if (!recorded && is_shared() && waited_ms < RECORD_PATIENCE_S * 1000) {
			nanosleep(&pause, NULL);
			continue;
		}
		if (place.address[0] != '\0')
			fd = try_connect(place.address, place.port, why);
		if (fd < 0)
			fd = try_connect(node, recorded ? place.port : port, why);
		if (fd < 0)
			nanosleep(&pause, NULL);
	}
	return fd;
}

int main(int argc, char **argv)
{
	const char *why = NULL;

	if (argc != 3 && argc != 4) {
		dprintf(2, "ce: error: ce-connect is started by ssh\n");
		return 1;
	}
	int fd = reach(argv[1], argv[2], argv[3], &why);
	if (fd >= 0 && ce_send(STDOUT_FILENO, "", 1, &fd, 1) == 0)
		return 0;
	dprintf(2, "ce: error: hook ssh: %s: %s\n", argv[1], fd < 0 ? why : strerror(errno));
	return 1;
}
