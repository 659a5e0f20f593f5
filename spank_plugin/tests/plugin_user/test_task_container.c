/* Tasks that ask for containers of their own. */
#define _GNU_SOURCE
#include "plugin_user/task_container.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

enum { NAMESPACES = 7 };

/* Be a guard that answers one task: send a note, and then this text with `count` descriptors; never
 * return. */
static void answer(int tasks, const char *text, size_t count)
{
	int fds[CE_MAX_FDS], sent[NAMESPACES];
	char word;

	CHECK_INT((int)ce_receive(tasks, 0, &word, 1, fds), 1);
	CHECK_INT(word, 'J');
	CHECK(fds[0] >= 0 && fds[1] >= 0 && fds[2] >= 0 && fds[3] < 0);
	CHECK_INT(ce_send(fds[0], "Nof hooks", 9, NULL, 0), 0);
	for (size_t i = 0; i < count && i < NAMESPACES; i++)
		sent[i] = open("/", O_PATH | O_CLOEXEC);
	if (text != NULL)
		CHECK_INT(ce_send(fds[0], text, strlen(text), sent, count), 0);
	_exit(0);
}

static int ask(const char *text, size_t count, struct ce_container *container, struct ce_error *err)
{
	struct ce_launcher launcher = { .life = -1 };
	int ends[2];

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	pid_t pid = fork();
	if (pid == 0)
		answer(ends[1], text, count);
	close(ends[1]);
	container->tasks = ends[0];
	int rc = ce_task_container(&launcher, 20, container, err);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	CHECK_INT(container->tasks, -1);
	return rc;
}

TEST("a task enters the namespaces of its own container in place of the first one's")
{
	struct ce_container container = CE_CONTAINER_INIT;
	struct ce_error err = CE_ERROR_INIT;
	int before = test_open_fds();

	container.user_ns = open("/", O_PATH | O_CLOEXEC);
	container.unshared[3] = open("/", O_PATH | O_CLOEXEC);
	CHECK_INT(ask("R", NAMESPACES, &container, &err), 0);
	CHECK(container.user_ns >= 0 && container.mount_ns >= 0);
	CHECK(container.unshared[1] >= 0 && container.unshared[2] < 0 && container.unshared[3] < 0);
	ce_container_close(&container);
	CHECK_INT(test_open_fds(), before);
}

TEST("where all tasks share a container, none is asked for")
{
	struct ce_container container = CE_CONTAINER_INIT;
	struct ce_launcher launcher = { .life = -1 };
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(ce_task_container(&launcher, 1, &container, &err), 0);
	CHECK_INT(container.user_ns, -1);
}

static void refused(const char *text, size_t count, const char *message)
{
	struct ce_container container = CE_CONTAINER_INIT;
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(ask(text, count, &container, &err), -1);
	CHECK_TEXT(ce_error_text(&err), message);
	ce_container_close(&container);
	ce_error_clear(&err);
}

TEST("a container that cannot be made is reported with the step, the reason and what was printed last")
{
	refused("Eeach\n28\ncannot make a mount namespace\n", 0,
		"cannot make this task's container: each: cannot make a mount namespace");
	refused("Ecrun\n0\ncrun ended with exit code 1\nfirst\nopen `/x`: no space\n", 0,
		"cannot make this task's container: crun: crun ended with exit code 1: open `/x`: no space");
	refused("E", 0, "cannot make this task's container: : ");
}

TEST("an answer that cannot be read fails the task")
{
	refused(NULL, 0, "the container ended before the task could join it");
	refused("R", 4, "the report of the task's container is not complete");
	refused("what", 0, "the report of the task's container cannot be read");
}
