/* Filters of system calls for tasks: the site's profile, a compiled filter in a root-owned file, and the one
 * that lets package managers work for root in a container that has a single user. */
#pragma once

#include "error.h"

/* Open the profile: instructions of classic BPF, as seccomp_export_bpf(3) writes them, in a regular file that
 * root owns and nobody else can write. Return a descriptor, or -1 with the error. */
int ce_profile_open(const char *path, struct ce_error *err);

/* Open the profile of an installation: tasks.bpf beside the site's configuration, below PREFIX/etc or else in
 * /etc. Return 0 with the descriptor in *fd, -1 there if there is no such file. Return -1 with the error if
 * there is a file that ce_profile_open refuses. */
int ce_profile_of_site(const char *prefix, int *fd, struct ce_error *err);

/* Confine this process, and all that it becomes and starts, to the profile in `fd`; no-op for -1. Return 0,
 * or -1 with the error. Call this last: the profile may refuse what prepares a task. */
int ce_profile_apply(int fd, struct ce_error *err);

/* Let calls succeed without an effect, for this process and all that it becomes and starts: those that change
 * an owner, that become another user, and that make a device. In a user namespace with one user they fail,
 * and package managers give up. The filter gives no right: it executes none of these calls. It needs
 * PR_SET_NO_NEW_PRIVS or a capability over the user namespace. Return 0, also on a machine for which there is
 * no filter, or -1 with errno. */
int ce_fakeroot(void);
