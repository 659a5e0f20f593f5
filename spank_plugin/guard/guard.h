/*
 * ce-guard, internal: the process that owns everything a container needs on a node.
 * guard.c          life: namespaces, the watching thread, the end
 * guard_report.c   what the launcher is told
 * guard_events.c   children and the other ends of the session, watched
 * guard_child.c    programs that are started
 * guard_ops.c      the specification: its format and the table of operations
 * guard_session.c  operations: the session's directory and what lies there
 * guard_image.c    operations: the image and its writable view
 * guard_root.c     operations: files inside the image's root that a start must make sure of
 * guard_bind.c     operations: bind mounts with flags
 * guard_more.c     operations: those that depend on what is in the image
 * guard_podman.c   operations: Podman, its gate, and the container's first process
 */
#ifndef CE_GUARD_H
#define CE_GUARD_H

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"

/* stamps: a line for each kind of operation, far from the limit */
enum { GUARD_MAX_FUSE = 64, GUARD_MAX_STAMPS = 2048 };
/* the exit code of a child whose program could not be executed; none of those that we start has it */
enum { GUARD_NOT_STARTED = 123 };

struct guard {
	int control;	   /* to the launcher: one report from us, then its word to go on */
	int watch;	   /* pidfd of slurmstepd (or of `ce run`); its end is ours */
	int life;	   /* to the plugin: closed means end, and the cause of an early death is sent */
	int signals;	   /* signalfd for SIGCHLD */
	int log;	   /* memory file with what our children print */
	_Atomic int attendant; /* to ce-attend, which stops services; 0: there are none to stop */
	int gate;	   /* the end of a FIFO that holds the container's runtime back, -1: there is none */
	int init;	   /* pidfd of the container's first process, -1 before there is one */
	pid_t fuse[GUARD_MAX_FUSE];
	size_t fuse_count;
	pid_t podman;	     /* 0 unless it runs beside other operations; its end is kept in podman_status */
	int podman_status;
	int in_more; /* the operations under way were added by a program */
	const char *stage;   /* the operation under way, for the report */
	int stage_errno;
	char stamps[GUARD_MAX_STAMPS]; /* "R", then "OPERATION NANOSECONDS\n" for its beginning */
	size_t stamps_size;
	const char *last_stamp; /* the operation of the last line; a literal */
	struct ce_error err;
};

#define GUARD_INIT                                                                          \
	{ .control = -1, .watch = -1, .life = -1, .signals = -1, .log = -1, .gate = -1,     \
	  .init = -1, .stage = "start", .err = CE_ERROR_INIT }

/* Fails with the kernel's reason kept beside the text, so that the launcher can translate it. */
int guard_fail(struct guard *guard, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails with how `what` ended, by its status of waitpid. */
int guard_fail_ended(struct guard *guard, const char *what, int status);

#endif
