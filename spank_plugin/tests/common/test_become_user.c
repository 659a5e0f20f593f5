#define _GNU_SOURCE
#include "common/become_user.h"

#include <grp.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "harness.h"

enum { USER = 54321, GROUP = 54322 };

/* Check the ids and saved ids, and that there are no groups, of this process, which has become the user. */
static void is_the_user(void)
{
	uid_t r, e, s;

	CHECK_INT(getresuid(&r, &e, &s), 0);
	CHECK(r == USER && e == USER && s == USER);
	CHECK_INT(getresgid(&r, &e, &s), 0);
	CHECK(r == GROUP && e == GROUP && s == GROUP);
	CHECK_INT(getgroups(0, NULL), 0);
}

static const gid_t before[] = { GROUP, 60001, 60002 };

static void without_groups(void)
{
	CHECK_INT(setgroups(3, before), 0);
	CHECK(ce_become_user(USER, GROUP) == NULL);
	is_the_user();
	_exit(0);
}

TEST("a process that becomes a user has none of root's groups")
{
	test_needs_root();
	CHECK_INT(test_in_child(without_groups), 0);
}

static void as_somebody_else(void)
{
	CHECK(ce_become_user(USER, GROUP) == NULL);
	CHECK(ce_become_user(USER + 1, GROUP) != NULL);
	CHECK(ce_become_user(USER, GROUP + 1) != NULL);
	CHECK(ce_become_user(USER, GROUP) == NULL);
	_exit(0);
}

TEST("a process that has become a user cannot become another")
{
	test_needs_root();
	CHECK_INT(test_in_child(as_somebody_else), 0);
}

/* Become root, as in root's own jobs: the ids do not change, so the kernel alone would leave the process as
 * traceable as it was. */
static void as_root_again(void)
{
	CHECK_INT(prctl(PR_SET_DUMPABLE, 1), 0);
	CHECK(ce_become_user(0, 0) == NULL);
	CHECK_INT(prctl(PR_GET_DUMPABLE), 0);
	_exit(0);
}

TEST("a process that has become a user cannot be traced")
{
	test_needs_root();
	CHECK_INT(test_in_child(as_root_again), 0);
}

/* A process that keeps its capabilities when its ids change, and so could regain root's ids. */
static void with_a_way_back(void)
{
	CHECK_INT(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0), 0);
	CHECK_TEXT(ce_become_user(USER, GROUP), "privileges could be regained");
	_exit(0);
}

TEST("a process that could become root again is refused")
{
	test_needs_root();
	CHECK_INT(test_in_child(with_a_way_back), 0);
}

static struct ids {
	uid_t uids[3];
	gid_t gids[3];
} left;

static void with_ids_left(void)
{
	CHECK_INT(setresgid(left.gids[0], left.gids[1], left.gids[2]), 0);
	CHECK_INT(setresuid(left.uids[0], left.uids[1], left.uids[2]), 0);
	CHECK_TEXT(ce_become_user(USER, GROUP), "not the user after dropping privileges");
	_exit(0);
}

TEST("a process that keeps an id of another user is refused")
{
	test_needs_root();
	for (int i = 0; i < 5; i++) {
		left = (struct ids){ { USER, USER, USER }, { GROUP, GROUP, GROUP } };
		if (i < 3)
			left.uids[i]++;
		else
			left.gids[i - 3]++;
		CHECK_INT(test_in_child(with_ids_left), 0);
	}
}
