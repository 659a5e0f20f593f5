#define _GNU_SOURCE
#include "plugin/slurmd_spool.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "common/io.h"
#include "harness.h"

/* Listen at a socket of this name in the test's directory, as slurmstepd does. */
static void listen_at(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK(snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", test_directory(), name) <
	      (int)sizeof address.sun_path);
	CHECK_INT(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	/* stays open until the test's process ends */
}

static void is_found(const char *name, uint32_t job, uint32_t step)
{
	listen_at(name);
	CE_AUTO_FREE char *node = NULL, *found = ce_spool_dir(job, step, &node);
	CHECK(found != NULL);
	CHECK_TEXT(found, test_directory());
	CHECK(node != NULL && strncmp(node, name, strlen(node)) == 0);
	CHECK_INT(name[strlen(node)], '_');
}

TEST("slurmstepd's socket tells where the node's spool directory is, and the node's name")
{
	is_found("nid7_12.3", 12, 3);
}

TEST("the socket of a batch step tells it, too")
{
	is_found("n1_12.4294967291", 12, 4294967291U);
}

TEST("a component of a heterogeneous job has its number behind the step's")
{
	is_found("n1_12.3.1", 12, 3);
}

TEST("sockets of other steps, of other purposes and without a path tell nothing")
{
	char name[] = "n1";
	int pair[2];

	listen_at("n1_12.31");
	listen_at("n1_112.3");
	listen_at("n2_12.4");
	listen_at("agent");
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	char *node = name;
	CHECK(ce_spool_dir(12, 3, &node) == NULL);
	CHECK(node == NULL);
}

TEST("the directory of a step's PMIx server is the one with the step's number, if there is one")
{
	char path[256];

	listen_at("nid7_12.3");
	CHECK(ce_spool_pmix(12, 3) == NULL);
	CHECK(snprintf(path, sizeof path, "%s/pmix.12.3", test_directory()) < (int)sizeof path);
	CHECK_INT(mkdir(path, 0700), 0);
	CE_AUTO_FREE char *found = ce_spool_pmix(12, 3);
	CHECK_TEXT(found, path);
	CHECK(ce_spool_pmix(12, 4) == NULL);
}
