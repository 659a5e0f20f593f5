/* The specification that the launcher writes for the guard, and its operations. */
#ifndef CE_GUARD_OPS_H
#define CE_GUARD_OPS_H

#include "guard.h"

/* Runs the whole specification: NUL-terminated strings, for each operation its name, the number of
 * its arguments in decimal, the arguments. */
int guard_run_operations(struct guard *guard, char *specification, size_t size);

/* An operation: its arguments, as many as guard_ops.c says at least, NULL behind them. Returns 0, or
 * -1 after guard_fail. */
typedef int guard_operation(struct guard *guard, char **args);

/* session SIZE DIR: the mount namespace, our tmpfs over DIR, the host's /proc kept at DIR/proc, a
 * /proc of our own. */
guard_operation guard_op_session;

/* dir PATH: a new directory. file PATH TEXT: a new file. */
guard_operation guard_op_dir, guard_op_file;

/* environment NAME VALUE: a variable for the programs that are started. */
guard_operation guard_op_environment;

/* fuse IMAGE DIR: the SquashFS file served at DIR, by a process outside every container. */
guard_operation guard_op_fuse;

/* overlay LOWER UPPER WORK DIR: the writable view of the image. */
guard_operation guard_op_overlay;

/* served DIR: a further SquashFS file is readable. */
guard_operation guard_op_served;

/* root-dir ROOT PATH: a directory of the image and those above it, made where they are missing. */
guard_operation guard_op_root_dir;

/* root-entry ROOT PATH ID LINE: a line for this id in a file like /etc/passwd of the image, unless it
 * has one. */
guard_operation guard_op_root_entry;

/* root-bind SOURCE ROOT PATH FLAG…: a read-only bind mount over PATH of the image, whose links stay
 * inside; a file or directory is made there where there is none. */
guard_operation guard_op_root_bind;

/* root-first ROOT PATH LINE: a first line for a file of the image, which is made if there is none. */
guard_operation guard_op_root_first;

/* root-link ROOT PATH TARGET: a link in the image, unless it has PATH already. */
guard_operation guard_op_root_link;

/* bind SOURCE TARGET FLAG…: a bind mount with flags of its own, for Podman to bind from. */
guard_operation guard_op_bind;

/* more PROGRAM ARG…: runs it and then the operations that it printed. */
guard_operation guard_op_more;

/* note TEXT: a packet "N" TEXT to the launcher, before the report. */
guard_operation guard_op_note;

/* gate FIFO: a FIFO that holds the container's runtime back (crun_gate.c), so that podman does not wait. */
guard_operation guard_op_gate;

/* podman PROGRAM ARG…: runs Podman and waits for it; behind a gate, only starts it. */
guard_operation guard_op_podman;

/* pass FIFO: the runtime may go on; waits for Podman. */
guard_operation guard_op_pass;

/* container PIDFILE NAME: waits until the container's init is the program NAME, then reports. */
guard_operation guard_op_container;

#endif
