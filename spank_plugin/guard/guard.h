/*
 * Internal to ce-guard, which begins the start of a step, and owns everything that its container needs on a
 * node.
 * main.c           the start: as an earlier one was, or by the launcher
 * step_env.c, step_port.c, step_trace.c: the step's environment, port, trace
 * start_answer.c, join_answer.c: recorded answers for its container
 * site_rules.c     whether the site has a rule that only Python judges
 * visit.c          taking over a container that lives with its job from another guard
 * reply.c          the guard's report, and the answer to the plugin
 * guard.c          lifetime: namespaces, the watching thread, the end
 * guard_fail.c     recording a failure
 * guard_report.c   reports to the launcher
 * guard_events.c   watching the children, and the processes for which the session exists
 * guard_child.c    starting programs
 * guard_memory.c   the size of a tmpfs, within the memory limit of the job
 * guard_door.c     handing a container that lives with its job over to later steps
 * guard_ops.c      the specification: its format and the table of operations
 * guard_session.c  operations: the session's directory and its contents
 * guard_image.c    operations: the image and its writable view
 * guard_ahead.c    what is read from an image, recorded and read ahead
 * guard_borrow.c   images that another step of the job has mounted
 * guard_hold.c     operations: the images of a job, mounted and served for all of its steps on the node
 * guard_root.c     operations: files inside the image's root that a start requires
 * guard_walk.c     paths inside the image's root, found or made
 * guard_bind.c     operations: bind mounts with flags
 * guard_inspect.c  operations: a program inspects the image and adds operations, or notes for the launcher
 * guard_container.c operations: the container's creation and its first process
 * guard_kept.c     operations: a container that lives with its job, and a step that joins it
 * guard_tasks.c    operations: a container for each task, and the processes that keep them
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/io.h"
#include "common/protocol.h"

/* GUARD_MAX_STAMPS is in bytes: the stamps have a line for each kind of operation, far fewer than would
 * fit */
enum { GUARD_MAX_CONTAINER = CE_AT_UNSHARED + CE_MAX_UNSHARED, GUARD_MAX_FUSE = 64, GUARD_MAX_STAMPS = 2048 };
/* the exit code of a child whose program could not be executed; no program that we start uses it */
enum { GUARD_NOT_STARTED = 123 };

struct guard {
	int control; /* socket to the launcher, or a keeper's to process 1, for reports; a byte comes back */
	int watch;   /* pidfd of slurmstepd, `ce run` or a keeper's task; this process ends when it does */
	/* socket to the plugin, or -1: its closing ends this process, and an early end is reported to it */
	int life;
	int signals;	   /* signalfd for SIGCHLD */
	mode_t umask;	   /* the user's, for OCI hooks; what this process makes in the image has 022 */
	int log;	   /* memory file with the output of our children */
	_Atomic int reaper; /* socket to ce-reaper, which stops services; -1 if there are none */
	int init;	   /* pidfd of the container's first process, -1 before there is one */
	pid_t fuse[GUARD_MAX_FUSE];
	char *fuse_image[GUARD_MAX_FUSE]; /* the images that these servers serve: paths, on the heap */
	int fuse_device[GUARD_MAX_FUSE];  /* their FUSE devices, only for other steps of the job; else -1 */
	size_t fuse_count;
	struct guard_kept {
		int lock;      /* the container's lock file, shared with other guards; -1: this step's own */
		char *root;    /* where this guard has mounted the container's root, on the heap; else NULL */
		char *door;    /* the path of the socket that other steps come to, on the heap */
		int listening; /* that socket, -1 until the container is ready */
		int has_mounts; /* whether this guard has joined a container and made a mount namespace */
		int container[GUARD_MAX_CONTAINER]; /* enum ce_container_fd */
		size_t count; /* of these, 0 until they are known */
	} kept;
	struct guard_hold {
		const char *holder; /* its socket's name, set before guard_live; NULL for none */
		int host_ns;	    /* the user namespace in which this process was started */
		int ends; /* epoll descriptor of the pidfds of the servers that the holder has; -1 for none */
		char *images[GUARD_MAX_FUSE]; /* as asked for, on the heap: the holder's, or lent by it */
		int servers[GUARD_MAX_FUSE];  /* pidfds of the servers of what it has lent */
		size_t count;
		const char *server; /* ce-image's path, in the holder alone; else NULL */
		/* guard_hold.c, on which guard_events.c must not depend: answer a process that has
		 * connected; unmount an image whose server has ended; NULL but in the holder */
		void (*lend)(struct guard *guard);
		void (*forget)(struct guard *guard, size_t number);
	} hold;
	struct guard_tasks {
		int socket; /* at which tasks ask for their containers; -1: one container for all */
		int others; /* its other end, for the launcher, the tasks and the keepers */
		int first[CE_MAX_FDS]; /* descriptors of the first container's report; a task gets them */
		int first_keeper;      /* socket to that container's keeper; -1 once a task has it */
		char *size, *dir;      /* of each container's own tmpfs, on the heap */
		char *rest;	       /* the operations that make a container, on the heap */
		size_t rest_size;
		/* answers a packet at the socket; -1 after guard_fail if a task's container has ended */
		int (*answer)(struct guard *guard);
	} tasks;
	int is_keeper; /* whether this process keeps one task's container, and ends it with the task */
	const char *rest; /* the operations after the current one */
	size_t rest_size;
	/* guard_run_operations, for keepers, which is above what they call */
	int (*run)(struct guard *guard, const char *specification, size_t size);
	int has_pids; /* whether tasks enter the container's PID namespace */
	int in_more; /* the current operations were added by a program (guard_inspect.c) */
	char *more;  /* operations that a program has added, to be run next, on the heap; NULL for none */
	size_t more_size;
	const char *stage;   /* the current operation, for the report */
	int stage_errno;
	char stamps[GUARD_MAX_STAMPS]; /* "R", then a line "OPERATION NANOSECONDS\n" for each beginning */
	size_t stamps_size;
	const char *last_stamp; /* the operation of the last line; a string literal */
	struct ce_error err;
};

#define GUARD_INIT                                                                          \
	{ .control = -1, .watch = -1, .life = -1, .signals = -1, .umask = 022, .log = -1, .reaper = -1, \
	  .init = -1, .kept = { .lock = -1, .listening = -1 }, .hold = { .host_ns = -1, .ends = -1 }, \
	  .tasks = { .socket = -1, .others = -1, .first_keeper = -1 }, .stage = "start",      \
	  .err = CE_ERROR_INIT }

/* Be a guard: read the specification from a descriptor and do what it says, in the user namespace `user_ns`
 * unless that is -1. Return the exit code, also in the child that is process 1. */
int guard_live(struct guard *guard, int specification, int user_ns);

/* Record a failure: this message and errno, so that the launcher can translate the kernel's reason. Only the
 * first failure is kept. Return -1. */
int guard_fail(struct guard *guard, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Record as a failure how `what` ended, by its waitpid status; errno is recorded as 0. Return -1. */
int guard_fail_ended(struct guard *guard, const char *what, int status);

/* Record as a failure that the file of an image is no longer what it was. Return -1. */
int guard_image_gone(struct guard *guard, const char *image);
