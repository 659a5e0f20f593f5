#define _GNU_SOURCE
#include "plugin/launcher_reply.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

/* Let a launcher answer with these packets, and end. Put its report on the save into `text`, and return
 * whether it has saved the container. */
static int told(const char *first, const char *second, char *text, size_t size)
{
	int ends[2];
	char word;

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	CHECK_INT(ce_send(ends[1], first, strlen(first), NULL, 0), 0);
	if (second != NULL)
		CHECK_INT(ce_send(ends[1], second, strlen(second), NULL, 0), 0);
	CHECK_INT(shutdown(ends[1], SHUT_WR), 0);
	int saved = ce_reply_await_save(ends[0], -1, ce_now_ms() + 1000, text, size);
	/* the launcher has been notified that the tasks have ended */
	CHECK_INT((int)recv(ends[1], &word, 1, MSG_DONTWAIT), 0);
	close(ends[0]);
	close(ends[1]);
	return saved;
}

TEST("what a launcher says of saving the container follows its answer")
{
	char text[64], brief[5];

	CHECK_INT(told("R/work", "S/x.sqsh: 1 MiB", text, sizeof text), 1);
	CHECK_TEXT(text, "S/x.sqsh: 1 MiB");
	CHECK_INT(told("R/work", "Fno room", text, sizeof text), 0);
	CHECK_TEXT(text, "Fno room");
	CHECK_INT(told("R/work", "S/x.sqsh: 1 MiB", brief, sizeof brief), 1);
	CHECK_TEXT(brief, "S/x.");
}

TEST("a launcher that ends without a report has saved nothing")
{
	char text[512] = "before", brief[5];

	CHECK_INT(told("R/work", NULL, text, sizeof text), 0);
	CHECK_CONTAINS(text, "F--container-save: nothing was saved: the process that saves the container");
	CHECK_CONTAINS(text, "\nce: see: ce help container-save");
	CHECK_INT(told("R/work", NULL, brief, sizeof brief), 0);
	CHECK_TEXT(brief, "F--c");
}
