/* The answers of a guard at the control socket of a running container that a step accepts. */
#define _GNU_SOURCE
#include "guard/visit.h"

#include <sys/socket.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

struct packet {
	const char *text;
	size_t size, fds;
};

/* Return the result of ce_visit_read for these packets. */
static int answer(const struct packet *packets, size_t count)
{
	static const int given[CE_MAX_FDS] = { 0, 0, 0, 0, 0, 0, 0, 0 };
	struct ce_visit visit = { .guards_ns = -1 };
	int ends[2], before = test_open_fds();

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	for (size_t i = 0; i < count; i++)
		CHECK_INT(ce_send(ends[1], packets[i].text, packets[i].size, given, packets[i].fds), 0);
	close(ends[1]);
	int rc = ce_visit_read(ends[0], &visit);
	close(ends[0]);
	ce_visit_close(&visit);
	CHECK_INT(test_open_fds(), before);
	return rc;
}

#define LAST { "", 1, 0 }

TEST("a guard's answer has the container, images with or without figures, and a last packet")
{
	const struct packet whole[] = {
		{ "C", 1, 5 }, { "/i.sqsh", 7, 2 }, { "/j.sqsh", 7, 1 }, { ".", 1, 1 }, LAST
	};

	CHECK_INT(answer(whole, 5), 0);
	for (size_t count = 0; count < 5; count++)
		CHECK_INT(answer(whole, count), -1);
}

TEST("an answer of another form is refused, and none of its descriptors stays open")
{
	const struct packet others[][3] = {
		{ { "C", 1, 4 }, LAST, LAST }, /* too few descriptors of the container */
		{ { "C", 1, 5 }, { "/i.sqsh", 7, 0 }, LAST }, /* an image without its FUSE device */
		{ { "C", 1, 5 }, { "/i.sqsh", 7, 3 }, LAST }, /* an image with one descriptor too many */
		{ { "C", 1, 5 }, { "/i.sq\0h", 7, 1 }, LAST }, /* a path with a NUL in it */
		{ { "C", 1, 5 }, { ".", 1, 0 }, LAST }, /* a root without its mount */
		{ { "C", 1, 5 }, { "", 1, 1 }, { "", 1, 1 } }, /* a last packet with a descriptor */
		{ LAST, LAST, LAST },
	};

	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		CHECK_INT(answer(others[i], 3), -1);
}

TEST("an answer with more images than a container can have is refused")
{
	struct packet packets[CE_VISIT_IMAGES + 3] = { { "C", 1, 5 } };

	for (size_t i = 1; i <= CE_VISIT_IMAGES + 1; i++)
		packets[i] = (struct packet){ "/i.sqsh", 7, 1 };
	packets[CE_VISIT_IMAGES + 1] = (struct packet)LAST;
	CHECK_INT(answer(packets, CE_VISIT_IMAGES + 2), 0);
	packets[CE_VISIT_IMAGES + 1] = packets[1];
	packets[CE_VISIT_IMAGES + 2] = (struct packet)LAST;
	CHECK_INT(answer(packets, CE_VISIT_IMAGES + 3), -1);
}
