#define _GNU_SOURCE
#include "image_holder.h"

#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "carry.h"
#include "common/io.h"
#include "common/protocol.h"
#include "common/say.h"
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

/* Return a memory file with what the holder does, in the format of guard/guard_ops.h; -1 on failure. */
static int specification(const char *prefix, const char *name)
{
	char text[3 * PATH_MAX];
	int length = snprintf(text, sizeof text,
			      "session%c2%c1m%c%s/libexec/container-engine/session%c"
			      "hold%c2%c%s%c%s/libexec/container-engine/ce-image%c",
			      0, 0, 0, prefix, 0, 0, 0, name, 0, prefix, 0);

	return (size_t)length < sizeof text ? ce_memory_file("ce-specification", text, (size_t)length) : -1;
}

/* Execute the guard; return only if that fails. */
static void execute(const char *prefix, char **job, const int args[CE_GUARD_LEAST])
{
	char program[PATH_MAX], numbers[CE_GUARD_LEAST][16];
	char *argv[1 + CE_GUARD_LEAST + 1] = { program }, *none[] = { NULL };
	snprintf(program, sizeof program, "%s/libexec/container-engine/ce-guard", prefix);
	for (int i = 0; i < CE_GUARD_LEAST; i++) {
		snprintf(numbers[i], sizeof numbers[i], "%d", args[i]);
		argv[1 + i] = numbers[i];
	}
	if (ce_leave_task(job, args, CE_GUARD_LEAST) == NULL)
		execve(program, argv, none);
}

void ce_holder_start(const struct ce_config *config, char **environment)
{
	char name[CE_HOLDER_SIZE];
	const char *job = ce_variable(environment, "SLURM_JOB_ID"), *node = ce_variable(environment, CE_NODE);
	int ends[2];

	if (holder.life < 0 || job == NULL || node == NULL || config->prefix == NULL ||
	    snprintf(name, sizeof name, CE_HOLDER_NAME, (unsigned)geteuid(), job, node) >= (int)sizeof name ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	CE_AUTO_FD ours = ends[0], theirs = ends[1];
	/* not the script: its own container, if it runs in one, ends before the holder does */
	CE_AUTO_FD slurmstepd = ce_pidfd_open(getppid());
	CE_AUTO_FD todo = specification(config->prefix, name);
	const int args[] = {
		[CE_GUARD_CONTROL] = theirs,
		[CE_GUARD_WATCH] = slurmstepd,
		[CE_GUARD_LIFE] = holder.start[CE_ARG_LIFE],
		[CE_GUARD_SPECIFICATION] = todo,
	};
	/* the child executes at once, and its program forks and ends: the script finds no child */
	pid_t pid = slurmstepd >= 0 && todo >= 0 ? vfork() : -1;
	if (pid == 0) {
		execute(config->prefix, environment, args);
		_exit(1);
	}
	if (pid > 0)
		(void)ce_await_child(pid);
}
