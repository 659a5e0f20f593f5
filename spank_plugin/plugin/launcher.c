#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io.h"

/* ---- shared memory ----------------------------------------------------------------------------- */

struct ce_shared *ce_shared_make(void)
{
	void *memory = mmap(NULL, sizeof(struct ce_shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory != MAP_FAILED ? memory : NULL;
}

void ce_shared_join(struct ce_shared *shared)
{
	int64_t none = 0, when = ce_now_ns();

	atomic_compare_exchange_strong(&shared->first_join, &none, when);
	/* of two tasks that join at the same moment, either may be recorded as the last */
	atomic_store(&shared->last_join, when);
	atomic_fetch_add(&shared->joined, 1);
}

void ce_shared_name(struct ce_shared *shared, const char *name)
{
	/* the last byte stays 0 */
	if (shared != NULL && name != NULL)
		strncpy(shared->node, name, CE_NODE_SIZE - 1);
}

void ce_shared_write(const struct ce_shared *shared, int trace, const char *reads)
{
	CE_AUTO_FREE char *line = NULL;
	int n = asprintf(&line,
			 "{\"end\":%lld,\"first_join\":%lld,\"last_join\":%lld,\"joined\":%lld,"
			 "\"image_reads\":[%s]}\n",
			 (long long)ce_now_ns(), (long long)shared->first_join, (long long)shared->last_join,
			 (long long)shared->joined, reads != NULL ? reads : "");

	/* one write, so that a line is either complete or absent; it is lost if the disk is full */
	if (n < 0 || write(trace, line, (size_t)n) < 0)
		return;
}

/* ---- the launcher ------------------------------------------------------------------------------ */

void ce_launcher_let_go(struct ce_launcher *launcher)
{
	for (int i = 0; i < CE_START_COUNT; i++)
		ce_close_fd(&launcher->start[i]);
}

int ce_launcher_process(const struct ce_launcher *launcher)
{
	int fds[CE_MAX_FDS];
	char byte;

	if (ce_receive(launcher->process, MSG_PEEK | MSG_DONTWAIT, &byte, 1, fds) <= 0)
		return -1;
	return fds[0];
}

static int write_entries(int fd, char *const *entry)
{
	for (; entry != NULL && *entry != NULL; entry++) {
		if (ce_write_all(fd, *entry, strlen(*entry) + 1) < 0)
			return -1;
	}
	return 0;
}

static int environment_file(char **environment, char *const *facts)
{
	CE_AUTO_FD fd = ce_memory_file("ce-job-environment", "", 0);

	/* facts last: of two entries with the same name, the launcher uses the later one */
	if (fd < 0 || write_entries(fd, environment) < 0 || write_entries(fd, facts) < 0 ||
	    lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	return ce_release_fd(&fd);
}

static int make_socket(int *ours, int *theirs, struct ce_error *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return ce_fail(err, "cannot make a socket: %s", strerror(errno));
	*ours = ends[0];
	*theirs = ends[1];
	return 0;
}

int ce_launcher_prepare(struct ce_launcher *launcher, const char *plan, char **environment,
			char *const *facts, uid_t uid, gid_t gid, struct ce_error *err)
{
	int *start = launcher->start;

	launcher->uid = uid;
	launcher->gid = gid;
	launcher->shared = ce_shared_make();
	if (launcher->shared == NULL)
		return ce_fail(err, "cannot get memory for the step: %s", strerror(errno));
	if (make_socket(&launcher->reply, &start[CE_ARG_REPLY], err) < 0 ||
	    make_socket(&launcher->life, &start[CE_ARG_LIFE], err) < 0 ||
	    make_socket(&launcher->process, &start[CE_START_PROCESS], err) < 0)
		return -1;
	start[CE_ARG_PLAN] = ce_memory_file("ce-plan", plan, strlen(plan));
	start[CE_ARG_ENVIRONMENT] = environment_file(environment, facts);
	/* slurmstepd, which the session must not outlive */
	start[CE_ARG_WATCH] = ce_pidfd_open(getpid());
	if (start[CE_ARG_PLAN] < 0 || start[CE_ARG_ENVIRONMENT] < 0 || start[CE_ARG_WATCH] < 0)
		return ce_fail(err, "cannot hand over the plan: %s", strerror(errno));
	return 0;
}
