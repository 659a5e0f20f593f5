#define _GNU_SOURCE
#include "plugin_user/step_processes.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "fake_launcher.h"
#include "generated/help.h"
#include "harness.h"

static struct ce_config config;
static struct ce_launcher launcher = CE_LAUNCHER_INIT;
static struct ce_error err = CE_ERROR_INIT;
static char job_first[] = "FIRST=1=2", job_second[] = "SECOND=a\nb";
static char *job[] = { job_first, job_second, NULL };
static char fact[] = "FACT=3";
static char *const facts[] = { fact, NULL };

static void prepare(const char *plan)
{
	config.guard = (char *)fake_launcher();
	CHECK_INT(ce_launcher_prepare(&launcher, plan, job, facts, getuid(), getgid(), &err), 0);
}

/* Return the answer, as a task reads it, on the heap. */
static char *read_answer(void)
{
	int fds[CE_MAX_FDS];
	char *answer = calloc(1, 65537);

	CHECK(answer != NULL);
	CHECK(ce_receive(launcher.reply, 0, answer, 65536, fds) >= 0);
	return answer;
}

static char *start(const char *plan)
{
	prepare(plan);
	ce_launcher_start(&launcher, &config, job);
	return read_answer();
}

/* Become the parent of launchers, which otherwise have none, so that the test can wait for their end. */
static void adopt_launchers(void)
{
	CHECK_INT(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

TEST("the launcher gets only its own descriptors")
{
	CHECK(open("/dev/null", O_RDONLY) >= 0);
	CHECK_INT(dup2(STDIN_FILENO, 500), 500);
	char *report = start("report");
	CHECK_CONTAINS(report, "extra_fds=0\n");
	free(report);
}

TEST("the launcher holds nothing that the task prints into")
{
	int ends[2], before = dup(STDOUT_FILENO);
	char byte;

	CHECK(before >= 0);
	if (before < 0)
		return;
	CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
	CHECK_INT(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
	close(ends[1]);
	free(start("ready"));
	CHECK_INT(dup2(before, STDOUT_FILENO), STDOUT_FILENO);
	close(before);
	CHECK(ce_wait_readable(ends[0], ce_now_ms() + 2000));
	CHECK_INT(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}

TEST("the launcher's environment is minimal; the job's comes as data, byte by byte")
{
	setenv("LD_PRELOAD_OF_ROOT", "x", 1);
	char *report = start("report");
	CHECK_CONTAINS(report, "\nenv:PATH=/usr/sbin:/usr/bin:/sbin:/bin\nenv:LANG=C.UTF-8\njob:");
	CHECK(strstr(report, "env:SLURMD_NODENAME") == NULL);
	CHECK_CONTAINS(report, "job:FIRST=1=2;SECOND=a\nb;FACT=3;\n");
	CHECK(strstr(report, "LD_PRELOAD_OF_ROOT") == NULL);
	free(report);
}

TEST("the launcher gets the node's name, which slurmstepd knows only once it has tasks")
{
	static char name[] = "SLURMD_NODENAME=n1";
	char *task[] = { job_first, name, NULL };

	prepare("report");
	ce_launcher_start(&launcher, &config, task);
	char *report = read_answer();
	CHECK_CONTAINS(report, "\nenv:SLURMD_NODENAME=n1\njob:FIRST=");
	free(report);
}

TEST("the launcher starts in / and ignores the signals of the step; without a umask its files are private")
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGPIPE, SIG_IGN);
	umask(0);
	char *report = start("report");
	CHECK_CONTAINS(report, "umask=077\ncwd=/\n");
	CHECK_CONTAINS(report, "blocked=0\ninterrupt_ignored=1\npipe_ignored=0\n");
	free(report);
}

TEST("the launcher has the umask of the user who submitted the step")
{
	static char mask[] = "SLURM_UMASK=0027", bad[] = "SLURM_UMASK=27x";
	char *task[] = { job_first, mask, NULL };

	umask(0);
	prepare("report");
	ce_launcher_start(&launcher, &config, task);
	char *report = read_answer();
	CHECK_CONTAINS(report, "umask=027\n");
	free(report);

	task[1] = bad;
	prepare("report");
	ce_launcher_start(&launcher, &config, task);
	report = read_answer();
	CHECK_CONTAINS(report, "umask=077\n");
	free(report);
}

TEST("the launcher has a session of its own: no terminal, no process group of the task's")
{
	char *report = start("report");
	CHECK_CONTAINS(report, "leads_session=1\n");
	free(report);
}

TEST("the launcher may use every core, though the task that starts it is bound to one")
{
	cpu_set_t one, before;
	char wanted[64];

	CHECK_INT(sched_getaffinity(0, sizeof before, &before), 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
		if (CPU_ISSET(i, &before))
			CPU_SET(i, &one);
	CHECK_INT(sched_setaffinity(0, sizeof one, &one), 0);
	char *report = start("report");
	snprintf(wanted, sizeof wanted, "\ncores=%d\n", CPU_COUNT(&before));
	CHECK_CONTAINS(report, wanted);
	free(report);
}

TEST("the launcher has the user's limits, which Slurm sends along")
{
	static char core[] = "SLURM_RLIMIT_CORE=0", files[] = "SLURM_RLIMIT_NOFILE=U77";
	char *environment[] = { core, files, NULL };

	prepare("report");
	ce_launcher_start(&launcher, &config, environment);
	char *report = read_answer();
	CHECK_CONTAINS(report, "\ncore=0\nfiles=77\n");
	free(report);
}

TEST("a limit beyond the hard one, or one that is no number, changes nothing that it should not")
{
	static char high[] = "SLURM_RLIMIT_NOFILE=18446744073709551615", word[] = "SLURM_RLIMIT_CORE=lots",
		    empty[] = "SLURM_RLIMIT_STACK=U";
	char *environment[] = { high, word, empty, NULL };
	struct rlimit before, files, core, stack[2];

	CHECK_INT(getrlimit(RLIMIT_CORE, &before), 0);
	CHECK_INT(getrlimit(RLIMIT_STACK, &stack[0]), 0);
	ce_limits_apply(environment);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
	CHECK_INT(getrlimit(RLIMIT_CORE, &core), 0);
	CHECK_INT(getrlimit(RLIMIT_STACK, &stack[1]), 0);
	CHECK(files.rlim_cur == files.rlim_max);
	CHECK(core.rlim_cur == before.rlim_cur);
	CHECK(stack[1].rlim_cur == stack[0].rlim_cur);
}

TEST("the launcher can watch slurmstepd, which prepared it")
{
	char *report = start("report");
	CHECK_CONTAINS(report, "parent_watched=0\n");
	free(report);
}

TEST("the task that starts the launcher has no child afterwards")
{
	char *report = start("mute");
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
	free(report);
}

TEST("of all tasks of a node one starts the launcher")
{
	int status, first = 0;

	adopt_launchers();
	prepare("mute");
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			ce_launcher_start(&launcher, &config, job);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		first++;
	/* five tasks and one launcher */
	CHECK_INT(first, 6);
	ce_launcher_let_go(&launcher);
	char *answer = read_answer();
	CHECK_TEXT(answer, "");
	free(answer);
}

TEST("slurmstepd gets a pidfd of the launcher, as often as it asks, and none where no launcher was started")
{
	adopt_launchers();
	prepare("mute");
	CHECK_INT(ce_launcher_process(&launcher), -1);
	ce_launcher_start(&launcher, &config, job);
	pid_t pid = wait(NULL);
	CHECK(pid > 0);
	for (int i = 0; i < 2; i++) {
		CE_AUTO_FD process = ce_launcher_process(&launcher);
		/* it is a pidfd of the launcher, whose end the test has waited for, and of no other
		 * process */
		CHECK(process >= 0 && ce_wait_readable(process, ce_now_ms() + 5000));
		CHECK_INT(ce_pidfd_kill(process, 0), -1);
	}
}

TEST("the launcher's pidfd is of the launcher, and of no process that starts it")
{
	int status = 0;

	adopt_launchers();
	prepare("hang");
	ce_launcher_start(&launcher, &config, job);
	CE_AUTO_FD process = ce_launcher_process(&launcher);
	CHECK(process >= 0 && !ce_wait_readable(process, ce_now_ms() + 50));
	CHECK_INT(ce_pidfd_kill(process, SIGKILL), 0);
	CHECK(wait(&status) > 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST("once slurmstepd has let go, the sockets are the launcher's alone and their end shows")
{
	char byte;

	prepare("mute");
	ce_launcher_let_go(&launcher);
	CHECK_INT(recv(launcher.reply, &byte, 1, MSG_DONTWAIT), 0);
	CHECK_INT(recv(launcher.life, &byte, 1, MSG_DONTWAIT), 0);
}

/* The task that starts the launcher answers in its place, in a format that tasks understand. */
TEST("a launcher that is not installed is an answer with 125 that says what is missing")
{
	char wanted[1024];

	prepare("report");
	config.guard = (char *)test_path(test_directory(), "nothing");
	ce_launcher_start(&launcher, &config, job);
	char *answer = read_answer();
	snprintf(wanted, sizeof wanted,
		 "F125\ncannot start the launcher: %s: No such file or directory\n"
		 CE_HELP_PLUGIN_CONFIGURATION,
		 config.guard);
	CHECK_TEXT(answer, wanted);
	free(answer);
}

TEST("a job without environment and a plan of 1 MiB are handed over whole")
{
	char *none[] = { NULL }, *plan = malloc((1 << 20) + 1);
	struct stat file;

	CHECK(plan != NULL);
	memset(plan, 'x', 1 << 20);
	plan[1 << 20] = '\0';
	CHECK_INT(ce_launcher_prepare(&launcher, plan, none, NULL, getuid(), getgid(), &err), 0);
	CHECK_INT(fstat(launcher.start[CE_ARG_PLAN], &file), 0);
	CHECK_INT(file.st_size, 1 << 20);
	CHECK_INT(fstat(launcher.start[CE_ARG_ENVIRONMENT], &file), 0);
	CHECK_INT(file.st_size, 0);
	free(plan);
}
