/* The specification that the launcher writes for the guard, and the operations in it. */
#pragma once

#include <stdint.h>

#include "guard.h"

/* for operations that mount; not in <fcntl.h> of older C libraries */
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* Run the whole specification: NUL-terminated strings; for each operation its name, the number of its
 * arguments in decimal, the arguments. Return 0, or -1 after guard_fail. */
int guard_run_operations(struct guard *guard, const char *specification, size_t size);

/* An operation. `args` has at least as many arguments as guard_ops.c requires, followed by NULL. It returns
 * 0, GUARD_REST_DONE if it has taken care of the operations after it, or -1 after guard_fail. */
enum { GUARD_REST_DONE = 1 };
typedef int guard_operation(struct guard *guard, char **args);

/* session SIZE DIR: make the mount namespace, mount the session's tmpfs over DIR, keep the host's /proc at
 * DIR/proc, mount a /proc of the PID namespace, and change to DIR. */
guard_operation guard_op_session;

/* limits MEMORY PIDS TIME OUTCOME: end the container if it has more than that many bytes of memory, or goes
 * on for more milliseconds; note if it has as many processes as it may have; 0 is no limit. OUTCOME is the
 * descriptor of a file for what was seen (common/outcome.h), or -1. */
guard_operation guard_op_limits;

/* dir PATH: create a directory. file PATH TEXT: create a file. */
guard_operation guard_op_dir, guard_op_file;

/* environment NAME VALUE: set a variable for the programs that are started. */
guard_operation guard_op_environment;

/* fuse SERVER IMAGE DIR: let the program SERVER serve the SquashFS file at DIR, outside every container. */
guard_operation guard_op_fuse;

/* overlay UPPER WORK DIR LOWER…: mount the writable view of the images at DIR; each LOWER is above the one
 * before it. */
guard_operation guard_op_overlay;

/* served DIR: check that a further SquashFS file is readable. */
guard_operation guard_op_served;

/* hold NAME SERVER: mount and serve images for the steps of the job until the watched process ends, at an
 * abstract socket; never return. SERVER is ce-image's path. */
guard_operation guard_op_hold;

/* root-dir ROOT PATH: create a directory of the image and its parents, unless they exist. */
guard_operation guard_op_root_dir;

/* root-place ROOT PATH SOURCE: make PATH of the image for a mount of SOURCE, a directory or an empty file,
 * unless it exists. The image's symlinks are followed, also those whose target is missing. */
guard_operation guard_op_root_place;

/* root-devices ROOT: see to it that /dev of the image, which exists, can be opened without leaving ROOT.
 * Runtimes open it before it is their root: an absolute link there would lead them out on the node. */
guard_operation guard_op_root_devices;

/* root-order ROOT PATH …: the paths are destinations of mounts, in the order in which they are mounted; one
 * that would hide an earlier one is an error */
guard_operation guard_op_root_order;

/* root-entry ROOT PATH ID LINE: add a line for this id to a file of the image such as /etc/passwd, unless it
 * has one. The file and /etc are created if they do not exist. */
guard_operation guard_op_root_entry;

/* root-bind SOURCE ROOT PATH: bind-mount SOURCE read-only over PATH of the image, whose symlinks are resolved
 * inside the image; create a file or directory there if there is none. */
guard_operation guard_op_root_bind;

/* root-first ROOT PATH LINE: insert LINE as the first line of a file of the image, unless it is that already.
 * The file is created if there is none. */
guard_operation guard_op_root_first;

/* root-link ROOT PATH TARGET: create a symlink in the image, unless PATH exists. */
guard_operation guard_op_root_link;

/* root-copy SOURCE ROOT PATH: replace a file of the image by a copy of a file of the host, without a copy-up
 * of the image's. PATH has no symlinks. */
guard_operation guard_op_root_copy;

/* root-remove ROOT PATH: remove a file of the image. */
guard_operation guard_op_root_remove;

/* keep LOCK SOCKET: let other steps of the job join this container, through a control socket with the path
 * SOCKET. LOCK is the descriptor of a locked file, whose lock this process holds from now on. */
guard_operation guard_op_keep;

/* fuse-again SERVER IMAGE DEVICE [FIGURES]: serve an image through a connection that another guard has made,
 * which may end before this one. DEVICE is a descriptor of that connection, FIGURES of the file in which its
 * server counts. */
guard_operation guard_op_fuse_again;

/* root-again MOUNT DIR: mount at DIR the root of a running container that another guard keeps. MOUNT is a
 * descriptor. */
guard_operation guard_op_root_again;

/* root-inside MOUNT_NS WORKDIR PATH …: make the directories in the running container, but for places on other
 * file systems, and check that the working directory exists */
guard_operation guard_op_root_inside;

/* bind-inside MOUNT_NS PATH: mount a directory of the host at the same path of a running container, for this
 * step's MPI. MOUNT_NS is a descriptor, which stays open. */
guard_operation guard_op_bind_inside;

/* joined DESCRIPTOR…: report the container of another guard (enum ce_container_fd). */
guard_operation guard_op_joined;

/* each SIZE DIR: report a container that the operations after this one make, with a tmpfs of its own over
 * DIR, and make another one by them for each further task that asks. */
guard_operation guard_op_each;

/* root-setting ROOT PATH TEXT: write a file of the image, if the image has a directory for it. */
guard_operation guard_op_root_setting;

/* bind SOURCE TARGET FLAG…: make a bind mount with its own flags, for the runtime to bind from. */
guard_operation guard_op_bind;

/* more PROGRAM ARG…: run the program, then the operations that it has printed, which cannot add more. */
guard_operation guard_op_more;

/* note TEXT: send a packet "N" TEXT to the launcher, before the report. */
guard_operation guard_op_note;

/* crun PROGRAM ARG…, podman PROGRAM ARG…: run what creates the container, and wait for it. */
guard_operation guard_op_create;

/* container PIDFILE NAME [WORKDIR [pid]]: wait until the container's init is the program NAME, check that it
 * has the directory WORKDIR, then report; with `pid`, tasks enter its PID namespace. */
guard_operation guard_op_container;

/* ---- guard_memory.c ------------------------------------------------------------------------- */

/* Return the lowest limit, in bytes, of the process's memory cgroups and their ancestors; INT64_MAX if there
 * is none or none can be read. `groups` is the process's list of cgroups (/proc/self/cgroup), `root` is where
 * cgroups are mounted, of either version. Runs as the user. */
int64_t guard_memory_limit(const char *groups, const char *root);

/* Return the effective size of a tmpfs, on the heap; the caller frees it. NULL without memory. If `limit` is
 * lower than the node's memory (`total`), both in bytes, a percentage becomes that percentage of the limit,
 * in bytes: a job that fills its container's file system must get ENOSPC, instead of the kernel killing
 * slurmstepd. Any other size stays as it is. */
char *guard_memory_share(const char *size, int64_t limit, int64_t total);
