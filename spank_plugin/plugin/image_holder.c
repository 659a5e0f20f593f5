#define _GNU_SOURCE
#include "image_holder.h"

#include <sys/socket.h>

#include "common/io.h"
#include "launcher.h"
#include "session_end.h"

/* The two ends of a socket to the holder: ours, and the one that it gets. */
static struct ce_launcher holder = CE_LAUNCHER_INIT;

void ce_holder_prepare(uid_t uid, gid_t gid)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	holder.uid = uid;
	holder.gid = gid;
	holder.reply = holder.life = ends[0];
	holder.start[CE_ARG_LIFE] = ends[1];
}

void ce_holder_end(void)
{
	if (holder.life < 0)
		return;
	ce_launcher_let_go(&holder);
	ce_end_holder(&holder);
	holder.reply = -1;
	ce_close_fd(&holder.life);
}

int ce_holder_life(void)
{
	return holder.start[CE_ARG_LIFE];
}
