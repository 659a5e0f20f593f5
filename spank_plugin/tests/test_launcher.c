#define _GNU_SOURCE
#include "../launcher.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../help.h"
#include "../io.h"
#include "fake_node.h"
#include "harness.h"

enum { USER = 54321, GROUP = 54322 };

static struct ce_config config;
static struct ce_launcher launcher = CE_LAUNCHER_INIT;
static struct ce_error err = CE_ERROR_INIT;
static char job_first[] = "FIRST=1=2", job_second[] = "SECOND=a\nb";
static char *job[] = { job_first, job_second, NULL };
static char fact[] = "FACT=3";
static char *const facts[] = { fact, NULL };

/* The answer of a fake launcher with this plan (heap). */
static char *start(const char *plan, uid_t uid, gid_t gid)
{
	int fds[CE_MAX_FDS];
	char *answer = calloc(1, 65537);

	config.node = (char *)fake_node();
	CHECK(answer != NULL);
	CHECK_INT(ce_launcher_start(&launcher, &config, plan, job, facts, uid, gid, &err), 0);
	CHECK(ce_receive(launcher.reply, 0, answer, 65536, fds) >= 0);
	return answer;
}

/* The launcher is nobody's child; here its end is looked at. */
static void adopt_launchers(void)
{
	CHECK_INT(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

/* The answer comes in the launcher's place, and is one that tasks understand. */
static void cannot_start(uid_t uid, const char *why)
{
	int fds[CE_MAX_FDS], status;
	char answer[1024] = "", wanted[1024];

	adopt_launchers();
	CHECK_INT(ce_launcher_start(&launcher, &config, "report", job, facts, uid, getegid(), &err), 0);
	CHECK(ce_receive(launcher.reply, 0, answer, sizeof answer - 1, fds) > 0);
	CHECK(wait(&status) > 0);
	CHECK_INT(WEXITSTATUS(status), 125);
	snprintf(wanted, sizeof wanted, "F125\ncannot start the launcher: %s\n" CE_HELP_PLUGIN, why);
	CHECK_TEXT(answer, wanted);
}

/* As slurmstepd in user_init: the user's groups are set, the real id is root's. */
static void be_slurmstepd(void)
{
	static const gid_t groups[] = { GROUP, 60001, 60002 };

	test_needs_root();
	fake_node();
	CHECK_INT(setgroups(3, groups), 0);
	CHECK_INT(setegid(GROUP), 0);
	CHECK_INT(seteuid(USER), 0);
}

TEST("the launcher is the user for good: ids, groups, no way back")
{
	be_slurmstepd();
	char *report = start("report", USER, GROUP);
	CHECK_CONTAINS(report, "uids=54321,54321,54321\n");
	CHECK_CONTAINS(report, "gids=54322,54322,54322\n");
	CHECK_CONTAINS(report, "groups=54322,60001,60002\n");
	CHECK_CONTAINS(report, "regains=0\n");
	free(report);
	CHECK_INT(geteuid(), USER);
	CHECK_INT(getuid(), 0);
	/* or the search for leaks may not look at this process */
	CHECK_INT(seteuid(0), 0);
	CHECK_INT(prctl(PR_SET_DUMPABLE, 1), 0);
}

TEST("a slurmstepd that is root all over starts the launcher as the user too")
{
	test_needs_root();
	static const gid_t groups[] = { 60003 };
	CHECK_INT(setgroups(1, groups), 0);
	char *report = start("report", USER, GROUP);
	CHECK_CONTAINS(report, "uids=54321,54321,54321\n");
	CHECK_CONTAINS(report, "groups=60003\n");
	CHECK_CONTAINS(report, "regains=0\n");
	free(report);
	CHECK_INT(geteuid(), 0);
}

TEST("a process that cannot become the user starts nothing as somebody else")
{
	test_needs_root();
	config.node = (char *)fake_node();
	CHECK_INT(setresgid(GROUP, GROUP, GROUP), 0);
	CHECK_INT(setresuid(USER, USER, USER), 0);
	cannot_start(USER + 1, "not the user after dropping privileges: Operation not permitted");
}

TEST("the launcher gets only its own descriptors")
{
	CHECK(open("/dev/null", O_RDONLY) >= 0);
	CHECK_INT(dup2(STDIN_FILENO, 500), 500);
	char *report = start("report", geteuid(), getegid());
	CHECK_CONTAINS(report, "extra_fds=0\n");
	free(report);
}

TEST("the launcher's environment is minimal; the job's comes as data, byte by byte")
{
	setenv("LD_PRELOAD_OF_ROOT", "x", 1);
	char *report = start("report", geteuid(), getegid());
	CHECK_CONTAINS(report, "\nenv:PATH=/usr/sbin:/usr/bin:/sbin:/bin\nenv:LANG=C.UTF-8\njob:");
	CHECK_CONTAINS(report, "job:FIRST=1=2;SECOND=a\nb;FACT=3;\n");
	CHECK(strstr(report, "LD_PRELOAD_OF_ROOT") == NULL);
	free(report);
}

TEST("the launcher starts in / with a usual umask and deaf to the step's signals")
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGPIPE, SIG_IGN);
	umask(0);
	char *report = start("report", geteuid(), getegid());
	CHECK_CONTAINS(report, "umask=022\ncwd=/\n");
	CHECK_CONTAINS(report, "blocked=0\ninterrupt_ignored=1\npipe_ignored=0\n");
	free(report);
}

TEST("the launcher can watch the process that started it")
{
	char *report = start("report", geteuid(), getegid());
	CHECK_CONTAINS(report, "parent_watched=0\n");
	free(report);
}

TEST("the launcher is not among the children that Slurm waits for")
{
	char *report = start("mute", geteuid(), getegid());
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
	free(report);
}

TEST("the pidfd is the launcher's")
{
	adopt_launchers();
	char *report = start("mute", geteuid(), getegid());
	siginfo_t end = { .si_status = 1 };
	CHECK_TEXT(report, "");
	CHECK_INT(waitid(P_PIDFD, (id_t)launcher.process, &end, WEXITED), 0);
	CHECK_INT(end.si_status, 0);
	free(report);
}

TEST("a launcher that is not installed ends with 125 and says what is missing")
{
	char why[256];

	config.node = (char *)test_path(test_directory(), "nothing");
	snprintf(why, sizeof why, "%s: No such file or directory", config.node);
	cannot_start(geteuid(), why);
}

TEST("a job without environment and a plan of 1 MiB are handed over whole")
{
	char *none[] = { NULL }, *plan = malloc((1 << 20) + 1);
	char data[8];
	int fds[CE_MAX_FDS];

	CHECK(plan != NULL);
	memset(plan, 'x', 1 << 20);
	plan[1 << 20] = '\0';
	config.node = (char *)fake_node();
	CHECK_INT(ce_launcher_start(&launcher, &config, plan, none, NULL, geteuid(), getegid(), &err), 0);
	CHECK_INT(ce_launcher_start(&launcher, &config, "mute", NULL, NULL, geteuid(), getegid(), &err), 0);
	CHECK_INT(ce_receive(launcher.reply, 0, data, sizeof data, fds), 0);
	free(plan);
}
