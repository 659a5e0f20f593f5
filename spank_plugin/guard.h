/*
 * ce-guard, internal: the process that owns everything a container needs on a node.
 * guard.c        life: namespaces, events, reports, the end
 * guard_ops.c    the operations of the specification, in the order the launcher wrote them
 * guard_bind.c   bind mounts with flags
 * guard_more.c   operations that depend on what is in the image
 * guard_root.c   files inside the image's root that a start must make sure of
 */
#ifndef CE_GUARD_H
#define CE_GUARD_H

#include <stddef.h>
#include <sys/types.h>

#include "error.h"

/* stamps: a line for each kind of operation, far from the limit */
enum { GUARD_MAX_FUSE = 64, GUARD_MAX_STAMPS = 2048 };

struct guard {
	int control;	   /* to the launcher: one report from us, then its word to go on */
	int watch;	   /* pidfd of slurmstepd (or of `ce run`); its end is ours */
	int life;	   /* to the plugin: closed means end, and the cause of an early death is sent */
	int signals;	   /* signalfd for SIGCHLD */
	int log;	   /* memory file with what our children print */
	_Atomic int attendant; /* to ce-attend, which stops services; 0: there are none to stop */
	int init;	   /* pidfd of the container's first process, -1 before there is one */
	pid_t fuse[GUARD_MAX_FUSE];
	size_t fuse_count;
	int in_more; /* the operations under way were added by a program */
	const char *session; /* directory that our private tmpfs covers */
	const char *stage;   /* the operation under way, for the report */
	int stage_errno;
	char stamps[GUARD_MAX_STAMPS]; /* "R", then "OPERATION NANOSECONDS\n" for its beginning */
	size_t stamps_size;
	const char *last_stamp; /* the operation of the last line; a literal */
	struct ce_error err;
};

/* Fails with the kernel's reason kept beside the text, so that the launcher can translate it. */
int guard_fail(struct guard *guard, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Starts a program with stdin from /dev/null and its output in the log. `keep` is one descriptor the
 * program inherits (-1: none). Its pid, or -1 after guard_fail. */
pid_t guard_spawn(struct guard *guard, const char *const argv[], int keep);

/* The same with its standard output in the descriptor `output`. */
pid_t guard_spawn_to(struct guard *guard, const char *const argv[], int keep, int output);

/* Waits for a child while the session is being watched; ends the process when the session ended. */
int guard_wait(struct guard *guard, pid_t pid, int *status);

/* Waits at most `milliseconds` for any event. Returns -1 after guard_fail when a part of the session
 * died. Ends the process, and with it the session, when nobody wants it any more. */
int guard_events(struct guard *guard, int milliseconds);

/* Runs the whole specification: NUL-terminated strings, for each operation its name, the number of
 * its arguments in decimal, the arguments. */
int guard_run_operations(struct guard *guard, char *specification, size_t size);

/* Notes that an operation begins, by CLOCK_MONOTONIC; several of one kind in a row are one. */
void guard_stamp(struct guard *guard, const char *name);

/* Sends the ready report: when what began, descriptors of the namespaces, the environment, ourselves. */
int guard_report_ready(struct guard *guard, int process_dir);

/* bind SOURCE TARGET FLAG…: a bind mount with flags of its own, for Podman to bind from. */
int guard_bind(struct guard *guard, char **args);

/* more PROGRAM ARG…: runs it and then the operations that it printed. */
int guard_more(struct guard *guard, char **args);

/* note TEXT: a packet "N" TEXT to the launcher, before the report. */
int guard_note(struct guard *guard, char **args);

/* root-bind SOURCE ROOT PATH FLAG…: a read-only bind mount over PATH of the image, whose links stay
 * inside; a file or directory is made there where there is none. */
int guard_root_bind(struct guard *guard, char **args);

/* root-first ROOT PATH LINE: a first line for a file of the image, which is made if there is none. */
int guard_root_first(struct guard *guard, char **args);

/* root-link ROOT PATH TARGET: a link in the image, unless it has PATH already. */
int guard_root_link(struct guard *guard, char **args);

int guard_make_root_dir(struct guard *guard, const char *root, const char *path);
int guard_make_root_entry(struct guard *guard, const char *root, const char *path, const char *id,
			  const char *line);

#endif
