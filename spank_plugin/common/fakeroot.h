/* Lets package managers work for root in a container that has a single user. */
#pragma once

/* Let calls succeed without an effect, for this process and all that it becomes and starts: those that change
 * an owner, that become another user, and that make a device. In a user namespace with one user they fail,
 * and package managers give up. The filter gives no right: it executes none of these calls. It needs
 * PR_SET_NO_NEW_PRIVS or a capability over the user namespace. Return 0, also on a machine for which there is
 * no filter, or -1 with errno. */
int ce_fakeroot(void);
