#define _GNU_SOURCE
#include "become_user.h"

#include <errno.h>
#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *ce_become_user(uid_t uid, gid_t gid)
{
	uid_t r, e, s;

	if (getuid() == 0 || geteuid() == 0) {
		if (seteuid(0) < 0 || setgroups(0, NULL) < 0 ||
		    setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
			return "cannot become the user";
		/* Otherwise the user's other processes may trace this one, if fs.suid_dumpable lets them. */
		if (prctl(PR_SET_DUMPABLE, 0) < 0)
			return "cannot be kept from being traced";
	}
	if (getresuid(&r, &e, &s) < 0 || r != uid || e != uid || s != uid || getgid() != gid ||
	    getegid() != gid) {
		errno = EPERM;
		return "not the user after dropping privileges";
	}
	if (uid != 0 && (setuid(0) == 0 || seteuid(0) == 0)) {
		errno = EPERM;
		return "privileges could be regained";
	}
	return NULL;
}
