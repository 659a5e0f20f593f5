/*
 * ce-user: prints what this node's sources of users say of the user that runs it, for ce-guard, which is
 * static and cannot ask LDAP or SSSD itself: "=", login name, GECOS field, home and shell, then "=" and the
 * name of the primary group, each on a line; "-" in place of one that is not known. A recorded answer has
 * this text as a witness (container_engine/node/start/recorded_start.py writes the same).
 *
 * Runs as the user, with an empty environment. Exit code: 0, or 1 if the text cannot be written.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/program.h"

static void print(const char *field)
{
	fputs(field != NULL ? field : "", stdout);
	putchar('\n');
}

int main(void)
{
	ce_open_standard_streams();
	/* a source may not answer for minutes; ce-guard does not live as long */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);

	const struct passwd *user = getpwuid(getuid());
	if (user == NULL) {
		print("-");
	} else {
		print("=");
		print(user->pw_name);
		print(user->pw_gecos);
		print(user->pw_dir);
		print(user->pw_shell);
	}
	const struct group *group = getgrgid(getgid());
	if (group == NULL) {
		print("-");
	} else {
		print("=");
		print(group->gr_name);
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
