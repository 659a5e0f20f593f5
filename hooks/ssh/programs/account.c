/*
 * libce-account.so: replaces functions of the C library in a container's ssh server.
 *
 * Dropbear asks the C library for the account that logs in, for the valid shells, and for a terminal. In a
 * container the answers would come from an image that does not know this user, does not list its shells, and
 * whose home directory may be the host's. Here they come from the session instead: one account, the one that
 * runs the server, with a private home directory that holds the authorized keys. Loaded by the server alone
 * (`make install` adds it to its needed libraries).
 *
 * Everything runs as the user; nothing here can grant a right that the user does not have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pty.h>
#include <pwd.h>
#include <shadow.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utmp.h>

#define EXPORT __attribute__((visibility("default")))
#define HOME "/opt/oci-hooks/ssh/job"
#define SHELL "/opt/oci-hooks/ssh/dropbear/libexec/ce-login"

static char name[256];
/* "!" is not the hash of any password */
static struct passwd account = { .pw_name = name, .pw_passwd = (char *)"!", .pw_gecos = (char *)"",
				 .pw_dir = (char *)HOME, .pw_shell = (char *)SHELL };
static int shells_told;

static struct passwd *the_account(void)
{
	const char *user = getenv("CE_SSH_USER");

	if (user == NULL || strlen(user) >= sizeof name)
		return NULL;
	strcpy(name, user);
	account.pw_uid = getuid();
	account.pw_gid = getgid();
	return &account;
}

EXPORT struct passwd *getpwnam(const char *wanted)
{
	struct passwd *found = the_account();

	return found != NULL && strcmp(found->pw_name, wanted) == 0 ? found : NULL;
}

EXPORT struct passwd *getpwuid(uid_t uid)
{
	return uid == getuid() ? the_account() : NULL;
}

/* Return no entry: passwords are not requested, and this way the image's are never read. */
EXPORT struct spwd *getspnam(const char *wanted)
{
	(void)wanted;
	return NULL;
}

EXPORT char *getusershell(void)
{
	return shells_told++ == 0 ? (char *)SHELL : NULL;
}

EXPORT void setusershell(void)
{
	shells_told = 0;
}

EXPORT void endusershell(void)
{
	shells_told = 0;
}

/* Return no entry, whether for the terminal's group or any other: to look one up, the C library would read
 * the image's nsswitch.conf and load a library of the image that this file names. */
EXPORT struct group *getgrnam(const char *wanted)
{
	(void)wanted;
	return NULL;
}

EXPORT int getgrouplist(const char *user, gid_t group, gid_t *groups, int *count)
{
	(void)user;
	if (*count < 1)
		return -1;
	groups[0] = group;
	return *count = 1;
}

/* Do nothing. This is called only for users who are root in their containers, where only one group is
 * mapped. */
EXPORT int initgroups(const char *user, gid_t group)
{
	(void)user, (void)group;
	return 0;
}

/* Open the host's /dev/ptmx through a descriptor opened before the container was joined: on most hosts the
 * node in /dev/pts, the only one that a container sees, cannot be opened (ptmxmode=000). The kernel looks for
 * the terminals next to the node through which ptmx was opened, so it must be the host's. */
static int open_master(void)
{
	const char *number = getenv("CE_SSH_PTMX");
	char path[64];
	int master = -1;

	if (number != NULL) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", number);
		master = open(path, O_RDWR | O_NOCTTY);
	}
	return master >= 0 ? master : open("/dev/ptmx", O_RDWR | O_NOCTTY);
}

EXPORT int openpty(int *master, int *slave, char *path, const struct termios *mode,
		   const struct winsize *size)
{
	int unlock = 0, number = 0, fd = open_master();

	if (fd < 0)
		return -1;
	if (ioctl(fd, TIOCSPTLCK, &unlock) < 0 || ioctl(fd, TIOCGPTN, &number) < 0 ||
	    (*slave = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY)) < 0) {
		close(fd);
		return -1;
	}
	*master = fd;
	if (path != NULL)
		sprintf(path, "/dev/pts/%d", number);
	if (mode != NULL)
		tcsetattr(*slave, TCSAFLUSH, mode);
	if (size != NULL)
		ioctl(*slave, TIOCSWINSZ, size);
	return 0;
}

/* Record no logins. The server does that where the user is root in the container, and links in the image
 * would lead the records (/var/log/wtmp, /var/run/utmp) into the user's own files. */
EXPORT void login(const struct utmp *entry)
{
	(void)entry;
}

EXPORT int logout(const char *line)
{
	(void)line;
	return 1;
}

EXPORT void logwtmp(const char *line, const char *user, const char *host)
{
	(void)line, (void)user, (void)host;
}

static int is_terminal(const char *path)
{
	return strncmp(path, "/dev/pts/", 9) == 0;
}

/* Leave terminals alone: they come with the right owner and mode from the host's devpts. The server would
 * change their group to the image's `tty`, whose number has no meaning here, and end if that fails. */
EXPORT int chown(const char *path, uid_t owner, gid_t group)
{
	return is_terminal(path) ? 0 : fchownat(AT_FDCWD, path, owner, group, 0);
}

EXPORT int chmod(const char *path, mode_t mode)
{
	return is_terminal(path) ? 0 : fchmodat(AT_FDCWD, path, mode, 0);
}
