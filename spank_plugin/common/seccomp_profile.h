/* The site's seccomp profile for tasks: a compiled filter in a file of root's. */
#ifndef CE_SECCOMP_PROFILE_H
#define CE_SECCOMP_PROFILE_H

#include "error.h"

/* Open the profile: instructions of classic BPF, as seccomp_export_bpf(3) writes them. Only a regular file that
 * root owns and nobody else can write will do. Return a descriptor, or -1 with the error. */
int ce_profile_open(const char *path, struct ce_error *err);

/* Open the profile of an installation, as ce_profile_open does: tasks.bpf beside the site's configuration, below
 * PREFIX/etc or in /etc. Return -1 with the error; *fd is -1 if there is no such file. */
int ce_profile_of_site(const char *prefix, int *fd, struct ce_error *err);

/* Confine this process, and all that it becomes and starts, to the profile in `fd`; no-op for -1. Call it last:
 * the profile may refuse what prepares a task. */
int ce_profile_apply(int fd, struct ce_error *err);

#endif
