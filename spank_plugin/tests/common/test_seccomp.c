/* The place in which the site's seccomp profile for tasks is looked for, and its owner. */
#define _GNU_SOURCE
#include "common/seccomp.h"

#include <linux/filter.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"

static struct ce_error err = CE_ERROR_INIT;

static int looks(const char *prefix)
{
	int fd = 7, rc = ce_profile_of_site(prefix, &fd, &err);

	CHECK((rc == 0) == (err.message == NULL));
	int found = fd >= 0;
	CHECK(rc == 0 || !found);
	ce_close_fd(&fd);
	return rc < 0 ? -1 : found;
}

TEST("a profile beside the site's configuration is the site's if it is root's alone")
{
	const char *prefix = test_directory();

	test_needs_root();
	CHECK_INT(looks(prefix), 0);
	CHECK_INT(mkdir(test_path(prefix, "etc"), 0755), 0);
	CHECK_INT(mkdir(test_path(prefix, "etc/container-engine"), 0755), 0);
	CHECK_INT(looks(prefix), 0);
	const char *file = test_file(prefix, "etc/container-engine/tasks.bpf", "filter", 0644);
	CHECK_INT(looks(prefix), 1);
	CHECK_INT(chmod(file, 0646), 0);
	CHECK_INT(looks(prefix), -1);
	CHECK_CONTAINS(ce_error_text(&err), "must be owned by root and writable by nobody else");
	ce_error_clear(&err);
	CHECK_INT(chmod(file, 0644), 0);
	CHECK_INT(chown(file, 54321, 0), 0);
	CHECK_INT(looks(prefix), -1);
	ce_error_clear(&err);
	/* a dangling symlink is an error: the site wants a profile */
	CHECK_INT(unlink(file), 0);
	CHECK_INT(symlink("nowhere", file), 0);
	CHECK_INT(looks(prefix), -1);
	ce_error_clear(&err);
	CHECK_INT(unlink(file), 0);
	CHECK_INT(mkdir(file, 0700), 0);
	CHECK_INT(looks(prefix), -1);
	CHECK_CONTAINS(ce_error_text(&err), "must be owned by root and writable by nobody else");
	ce_error_clear(&err);
}

TEST("a profile that is too long for the kernel is refused")
{
	static const struct sock_filter code[BPF_MAXINSNS + 1];
	CE_AUTO_FD fd = ce_memory_file("filter", (const char *)code, sizeof code);

	CHECK(fd >= 0);
	CHECK_INT(ce_profile_apply(fd, &err), -1);
	CHECK_CONTAINS(ce_error_text(&err), "is not a filter of 1 to");
	ce_error_clear(&err);
}
