#define _GNU_SOURCE
#include "common/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/io.h"
#include "common/seccomp.h"
#include "harness.h"

#if defined(__x86_64__) || defined(__aarch64__)

static struct ce_error err = CE_ERROR_INIT;

static uid_t owner(const char *path)
{
	struct stat st;

	CHECK_INT(stat(path, &st), 0);
	return st.st_uid;
}

static void install(void)
{
	CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_INT(ce_fakeroot(), 0);
}

TEST("for root in a container, changes of owners and identities succeed without an effect")
{
	const char *file = test_file(test_directory(), "file", "", 0600);
	const gid_t group = 5;
	const uid_t before = getuid(), had = owner(file);

	install();
	CHECK_INT(chown(file, 1234, 1234), 0);
	CHECK_INT(lchown(file, 1234, 1234), 0);
	CHECK_INT(fchownat(AT_FDCWD, file, 1234, 1234, AT_SYMLINK_NOFOLLOW), 0);
	CHECK_INT(owner(file), had);
	CHECK_INT(setgroups(1, &group), 0);
	CHECK_INT(setresgid(7, 7, 7), 0);
	CHECK_INT(setresuid(7, 7, 7), 0);
	CHECK_INT(seteuid(7), 0);
	CHECK_INT(getuid(), before);
	CHECK_INT(geteuid(), before);
}

TEST("root in a container can make everything that mknod makes but devices")
{
	const char *top = test_directory();

	install();
	CHECK_INT(mknod(test_path(top, "null"), S_IFCHR | 0666, makedev(1, 3)), 0);
	CHECK_INT(mknod(test_path(top, "disk"), S_IFBLK | 0666, makedev(8, 0)), 0);
	CHECK_INT(access(test_path(top, "null"), F_OK), -1);
	CHECK_INT(access(test_path(top, "disk"), F_OK), -1);
	CHECK_INT(mkfifo(test_path(top, "fifo"), 0600), 0);
	CHECK_INT(mknod(test_path(top, "fifo"), S_IFIFO | 0600, 0), -1);
	CHECK_INT(errno, EEXIST);
	CHECK_INT(chmod(test_path(top, "none"), 0600), -1);
	CHECK_INT(errno, ENOENT);
}

TEST("what the site's profile refuses is refused to root in a container, too")
{
	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fchownat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const char *top = test_directory();
	CE_AUTO_FD profile = open(test_path(top, "profile"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	CHECK_INT(write(profile, code, sizeof code), (ssize_t)sizeof code);
	install();
	CHECK_INT(fchownat(AT_FDCWD, top, 1, 1, 0), 0);
	CHECK_INT(ce_profile_apply(profile, &err), 0);
	CHECK_INT(fchownat(AT_FDCWD, top, 1, 1, 0), -1);
	CHECK_INT(errno, EPERM);
	CHECK_INT(setresuid(7, 7, 7), 0);
}

TEST("root in a container gets its filter also where tasks may gain privileges")
{
	const char *file = test_file(test_directory(), "file", "", 0600);

	CHECK_INT(unshare(CLONE_NEWUSER), 0);
	CHECK_INT(ce_fakeroot(), 0);
	CHECK_INT(chown(file, 1234, 1234), 0);
}

TEST("without no_new_privs and capabilities there is no filter")
{
	if (getuid() == 0)
		CHECK_INT(setresuid(65534, 65534, 65534), 0);
	CHECK_INT(ce_fakeroot(), -1);
	CHECK_INT(errno, EACCES);
}

#endif
