/*
 * Internal to ce-guard, which begins the start of a step, and owns everything that its container needs on a
 * node.
 * main.c           the start: as an earlier one was, or by the launcher
 * step_env.c, step_trace.c: the step's environment and trace
 * step_answers.c   recorded answers for its container
 * startup.c        start-up steps
 * site_rules.c     whether the site has a rule that only Python judges
 * visit.c          taking over a container that lives with its job from another guard
 * reply.c          the guard's report, and the answer to the plugin
 * guard.c          lifetime: namespaces, the watching thread, the end
 * guard_fail.c     recording a failure
 * guard_report.c   reports to the launcher
 * guard_child.c    starting programs, and watching them and the processes for which the session exists
 * guard_control_socket.c handing a container that lives with its job over to later steps
 * guard_memory.c   the size of a tmpfs, within the memory limit of the job
 * guard_limits.c   limits of the container: its memory, processes, time
 * guard_ops.c      the specification: its format and the table of operations
 * guard_session.c  operations: the session's directory and its contents, bind mounts with flags
 * guard_image.c    operations: the image and its writable view
 * guard_ahead.c    what is read from an image, recorded and read ahead
 * guard_borrow.c   images that another step of the job has mounted
 * guard_hold.c     operations: the images of a job, mounted and served for all of its steps on the node
 * guard_root.c     operations: files inside the image's root that a start requires
 * guard_walk.c     paths inside the image's root, found or made
 * guard_inspect.c  operations: a program inspects the image and adds operations, or notes for the launcher
 * guard_container.c operations: the container's creation and its first process
 * guard_job_container.c operations: a container that lives with its job, and a step that joins it
 * guard_tasks.c    operations: a container for each task, and the processes that keep them
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "common/io.h"
#include "common/protocol.h"

/* GUARD_MAX_TIMES is in bytes: there is a line for each kind of operation, far fewer than would fit */
enum { GUARD_MAX_CONTAINER = CE_AT_UNSHARED + CE_MAX_UNSHARED, GUARD_MAX_FUSE = 64, GUARD_MAX_TIMES = 2048 };
/* the exit code of a child whose program could not be executed; no program that we start uses it */
enum { GUARD_NOT_STARTED = 123 };
/* the most tmpfs mounts of a container that count for its limit of memory */
enum { GUARD_MAX_TMPFS = 64 };

struct guard {
	int control; /* socket to the launcher (a task guard: to process 1), for reports; a byte comes back */
	int watch;   /* pidfd of slurmstepd, `ce run` or the task; this process ends when it does */
	/* socket to the plugin, or -1: its closing ends this process, and an early end is reported to it */
	int life;
	int listening; /* socket to which other processes come: for a job container, or the holder; else -1 */
	int signals;	   /* signalfd for SIGCHLD */
	mode_t umask;	   /* the user's, for OCI hooks; what this process makes in the image has 022 */
	int log;	   /* memory file with the output of our children */
	_Atomic int reaper; /* socket to ce-reaper, which stops services; -1 if there are none */
	int init;	   /* pidfd of the container's first process, -1 before there is one */
	pid_t fuse[GUARD_MAX_FUSE];
	char *fuse_image[GUARD_MAX_FUSE]; /* the images that these servers serve: paths, on the heap */
	int fuse_device[GUARD_MAX_FUSE];  /* clones of their devices, for other steps of the job; else -1 */
	int fuse_figures[GUARD_MAX_FUSE]; /* where they count (common/image_figures.h), or -1 */
	size_t fuse_count;
	const char *staged; /* the directory of copies of the images, set before guard_live; NULL for none */
	struct guard_job_container {
		int lock;      /* the container's lock file, shared with other guards; -1: this step's own */
		char *root;    /* where this guard has mounted the container's root, on the heap; else NULL */
		char *control_socket; /* its path, on the heap; other steps come to it */
		int has_mounts; /* whether this guard has joined a container and made a mount namespace */
		int container[GUARD_MAX_CONTAINER]; /* enum ce_container_fd */
		size_t count; /* of these, 0 until they are known */
	} job_container;
	struct guard_hold {
		const char *holder; /* its socket's name, set before guard_live; NULL for none */
		int host_ns;	    /* the user namespace in which this process was started */
		int ends; /* epoll descriptor of the pidfds of the servers that the holder has; -1 for none */
		char *images[GUARD_MAX_FUSE]; /* as asked for, on the heap: the holder's, or lent by it */
		int servers[GUARD_MAX_FUSE];  /* pidfds of the servers of what it has lent */
		int figures[GUARD_MAX_FUSE];  /* where these count, or -1; open for those who look there */
		size_t count;
		const char *server; /* ce-image's path, in the holder alone; else NULL */
		/* guard_hold.c, on which guard_child.c must not depend: answer a process that has
		 * connected; unmount an image whose server has ended; NULL but in the holder */
		void (*lend)(struct guard *guard);
		void (*forget)(struct guard *guard, size_t number);
	} hold;
	struct guard_tasks {
		int socket; /* at which tasks ask for their containers; -1: one container for all */
		int others; /* its other end, for the launcher, the tasks and their guards */
		int first[CE_MAX_FDS]; /* descriptors of the first container's report; a task gets them */
		int first_guard;      /* socket to that container's guard; -1 once a task has it */
		pid_t *guards;	       /* the task guards, on the heap */
		size_t guard_count;
		char *size, *dir;      /* of each container's own tmpfs, on the heap */
		char *rest;	       /* the operations that make a container, on the heap */
		size_t rest_size;
		/* answers a packet at the socket; -1 after guard_fail if a task's container has ended */
		int (*answer)(struct guard *guard);
	} tasks;
	struct guard_limits {
		int is_wanted;	 /* whether this process looks at the container at all */
		uint64_t memory; /* in bytes; 0: no limit, as for the others */
		uint64_t pids;	 /* processes and threads, which the kernel limits (RLIMIT_NPROC) */
		int64_t time_ms;
		int64_t end_ms;	 /* when the time is over, as ce_now_ms */
		int outcome;	 /* where it is noted what was reached (common/outcome.h), or -1 */
		int proc;	 /* the /proc of the container's PID namespace */
		int root;	 /* of the container, as its first process has it */
		int mounts;	 /* that process's mountinfo, open */
		int files[GUARD_MAX_TMPFS]; /* the container's tmpfs mounts, as O_PATH */
		size_t file_count;
		int is_reached; /* whether the container ends for a limit */
	} limits;
	int is_task_guard; /* whether this process keeps one task's container, and ends it with the task */
	const char *rest; /* the operations after the current one */
	size_t rest_size;
	/* guard_run_operations, for task guards, which is above what they call */
	int (*run)(struct guard *guard, const char *specification, size_t size);
	int has_pids; /* whether tasks enter the container's PID namespace */
	int in_more; /* the current operations were added by a program (guard_inspect.c) */
	char *more;  /* operations that a program has added, to be run next, on the heap; NULL for none */
	size_t more_size;
	const char *stage;   /* the current operation, for the report */
	int stage_errno;
	char times[GUARD_MAX_TIMES]; /* "R", then a line "OPERATION NANOSECONDS\n" for each beginning */
	size_t times_size;
	const char *last_timed; /* the operation of the last line; a string literal */
	struct ce_error err;
};

#define GUARD_INIT                                                                          \
	{ .control = -1, .watch = -1, .life = -1, .signals = -1, .umask = 022, .log = -1, .reaper = -1, \
	  .init = -1, .listening = -1, .job_container = { .lock = -1 },                        \
	  .hold = { .host_ns = -1, .ends = -1 },                                              \
	  .tasks = { .socket = -1, .others = -1, .first_guard = -1 },                         \
	  .limits = { .outcome = -1, .proc = -1, .root = -1, .mounts = -1 }, .stage = "start", \
	  .err = CE_ERROR_INIT }

/* Be a guard: read the specification from a descriptor and do what it says, in the user namespace `user_ns`
 * unless that is -1. Return the exit code, also in the child that is process 1. */
int guard_live(struct guard *guard, int specification, int user_ns);

/* ---- guard_fail.c --------------------------------------------------------------------------- */

/* Record a failure: this message and errno, so that the launcher can translate the kernel's reason. Only the
 * first failure is kept. Return -1. */
int guard_fail(struct guard *guard, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Record as a failure how `what` ended, by its waitpid status; errno is recorded as 0. Return -1. */
int guard_fail_ended(struct guard *guard, const char *what, int status);

/* Record as a failure that the file of an image is no longer what it was. Return -1. */
int guard_image_gone(struct guard *guard, const char *image);

/* ---- guard_report.c: to the launcher, over guard->control ----------------------------------- */

/* Record when an operation begins, by CLOCK_MONOTONIC, and its name, a string literal. Consecutive operations
 * of one kind count as one. */
void guard_note_time(struct guard *guard, const char *name);

/* Report that the container is ready whose first process has this /proc directory (enum ce_reported_fd), with
 * the times and the end of our children's output. Return 0, or -1 after guard_fail. */
int guard_report_ready(struct guard *guard, int process_dir);

/* Send the same report for a container of these descriptors (enum ce_container_fd), which remain the
 * caller's. Keep copies for later steps (guard_keep_container). */
int guard_report_container(struct guard *guard, const int container[], size_t count);

/* Report the failure: the current operation, the errno and the message of guard_fail, the end of our
 * children's output, and the end of what OCI hooks have printed. */
void guard_report_failure(struct guard *guard);

/* ---- guard_child.c -------------------------------------------------------------------------- */

/* Start the server of an image, which is mounted through `device` already. `mode` is "again" if another
 * server has answered requests through this connection before, "tell" if it is to write to `reads` what the
 * kernel reads, else NULL. It counts in `figures`, which this process keeps, or, if that is -1, in a new
 * memory file. Return 0, or -1 after guard_fail. */
int guard_start_server(struct guard *guard, const char *server, const char *image, int device,
		       const char *mode, int reads, int figures);

/* Return another device of the same FUSE connection, -1 with errno. The kernel fails the requests that a
 * server has taken when the last descriptor of its device is closed. Who keeps the connection for others
 * keeps a clone: with the device itself, a request that a killed server has left would never end, nor would
 * who waits for it. */
int guard_clone_device(int device);

/* Run a program, or its copy at the path `copy` if that is not NULL and can be executed, with its standard
 * output in the descriptor `output`, and wait for it. Messages of failures call it `what`. Return 0 if it
 * ended with exit code 0, else -1 after guard_fail. */
int guard_run(struct guard *guard, const char *what, char *const argv[], const char *copy, int output);

/* Wait for a child while watching the session; end this process when the session has ended. Return
 * 0, or -1 after guard_fail. */
int guard_wait(struct guard *guard, pid_t pid, int *status);

/* Wait at most `milliseconds` for any event; -1 for no limit. Return -1 after guard_fail when a part of the
 * session has died. End this process, and with it the session, when it is no longer needed. */
int guard_events(struct guard *guard, int milliseconds);

/* ---- guard_limits.c ------------------------------------------------------------------------- */

/* Limit the container's processes, and get ready to look at them, if limits are wanted, or if an outcome is
 * wanted and they can be told. The container's first process has this /proc directory and pid. Return 0, or
 * -1 after guard_fail. */
int guard_limits_begin(struct guard *guard, int process_dir, pid_t pid);

/* Promise in the file of an outcome, before a task enters its container, to note there what becomes of it, if
 * limits are wanted. */
void guard_limits_promise(const struct guard *guard, int outcome);

/* Note in the file of the outcome, if there is one, why the container ends, unless it is for a limit. */
void guard_limits_note_end(const struct guard_limits *limits, const char *cause);

/* Wait until the session ends, and look at the container meanwhile if limits are wanted, whose time begins
 * now. Return -1 after guard_fail when a part of the session has died, or the container was ended for a
 * limit; end this process as guard_events does. */
int guard_wait_for_end(struct guard *guard);

/* ---- guard_control_socket.c ------------------------------------------------------------------ */

/* A container that lives with its job: other steps join it while it runs, or start another one over its
 * files. */

/* Keep the container's descriptors (see guard_report_container) for steps that join it later; do nothing for
 * a container that ends with its step. Return 0, or -1 after guard_fail. */
int guard_keep_container(struct guard *guard, const int container[], size_t count);

/* Keep where the container's root is mounted, for steps that start another container over its files. Do
 * nothing for a container that ends with its step. */
void guard_keep_root(struct guard *guard, const char *path);

/* Open the control socket of a job's container, and change its lock to a shared one, which shows others that
 * it is ready. If the socket cannot be opened, the container serves its own step all the same. */
void guard_open_control_socket(struct guard *guard);

/* Return whether the other end of a socket is a process of this user and group. With another group, a process
 * of this user namespace gets no answers from FUSE. */
int guard_is_own(int visitor);

/* Answer a process of this user that has connected to the control socket. The first packet has the
 * descriptors of the guard's user namespace and of the container (enum ce_container_fd). Then one for each
 * image has its path, its server's FUSE device and, if there is one, the file in which that counts; the one
 * of "." a mount of the container's root, unless another guard has mounted that. A packet of one NUL shows
 * that nothing is missing. */
void guard_answer_control_socket(struct guard *guard);
