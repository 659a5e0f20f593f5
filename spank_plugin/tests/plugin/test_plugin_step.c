/* The plugin's callbacks in slurmstepd and in the tasks, with a launcher whose behaviour the plan selects
 * (fake_launcher.c). */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "common/join.h"
#include "fake_spank.h"
#include "generated/help.h"
#include "harness.h"
#include "installation.h"
#include "plugin/argv_mark.h"
#include "plugin/carry.h"
#include "plugin_user/multi_prog.h"
#include "plugin_user/task_container.h"

enum { USER = 54321, GROUP = 54322 };

/* a variable that srun carries with the plan; NULL for none */
static const char *carried;
/* the user's own task prolog in a step whose task prolog is ce-prolog, "" for none; NULL in any other step */
static const char *checked;
/* the task prolog of such a step, ce-prolog unless a test sets another */
static const char *prolog = "/x/ce-prolog";

/* Run another task of the node, the first one that Slurm starts: it starts the launcher. Its output is
 * discarded. After it, slurmstepd has forked all tasks. */
static void start_launcher(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		fake_job.task = 9;
		if (freopen("/dev/null", "w", stderr) == NULL || freopen("/dev/null", "w", stdout) == NULL ||
		    (geteuid() == 0 &&
		     (setresgid(GROUP, GROUP, GROUP) < 0 || setresuid(USER, USER, USER) < 0)))
			_exit(1);
		slurm_spank_task_init(fake_spank(), 0, NULL);
		_exit(0);
	}
	CHECK_INT(slurm_spank_task_post_fork(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

/* Run slurmstepd's callbacks up to user_init, for a step whose srun carried this text (NULL: nothing
 * arrived). */
static void begin_step_carrying(const char *text)
{
	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_job.uid = geteuid() == 0 ? USER : geteuid();
	fake_job.gid = geteuid() == 0 ? GROUP : getegid();
	fake_setenv("SLURMD_NODENAME", "nid7");
	fake_setenv("REMOVED", "x");
	if (carried != NULL)
		fake_setenv(carried, "1");
	if (checked != NULL)
		fake_setenv("SLURM_TASK_PROLOG", prolog);
	if (checked != NULL && checked[0] != '\0')
		fake_setenv(CE_CARRY_USER_PROLOG, checked);
	if (text != NULL) {
		fake_setenv(CE_CARRY_COUNT, "1");
		fake_setenv(CE_CARRY_PART "0", text);
	}
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	start_launcher();
}

static void begin_step(const char *plan)
{
	char text[64];

	snprintf(text, sizeof text, CE_WORD_PLAN "%s", plan);
	begin_step_carrying(text);
}

static void end_step(void)
{
	CHECK_INT(slurm_spank_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
	fake_reset(S_CTX_REMOTE);
}

static void task(void)
{
	if (geteuid() == 0) {
		CHECK_INT(setresgid(GROUP, GROUP, GROUP), 0);
		CHECK_INT(setresuid(USER, USER, USER), 0);
	}
	CHECK_INT(slurm_spank_task_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	/* here Slurm would execute the command */
	dprintf(STDERR_FILENO, "the command runs\n");
}

/* Check that a task ends with this code, has printed this, and has not executed its command. */
static void task_fails(int code, const char *wanted)
{
	int status = test_in_child(task);

	CHECK_TEXT(test_printed, wanted);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), code);
}

/* ---- no container ------------------------------------------------------------------------------ */

static void runs_untouched(void)
{
	CHECK_INT(test_in_child(task), 0);
	CHECK_TEXT(test_printed, "the command runs\n");
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
}

TEST("batch scripts, interactive and extern steps run on the host; the sruns inside inherit")
{
	static const uint32_t steps[] = { SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT,
					  SLURM_INTERACTIVE_STEP, SLURM_PENDING_STEP };

	install("exit 1");
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		fake_reset(S_CTX_REMOTE);
		fake_job.step = steps[i];
		CHECK_INT(init_plugin(), SLURM_SUCCESS);
		CHECK_INT(fake_give_option("environment", "demo"), 0);
		CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
		runs_untouched();
		end_step();
	}
}

TEST("an interactive step for which srun was asked for a container runs in it, or not at all")
{
	static const char *const plans[] = { CE_WORD_PLAN "fail", NULL };

	install("exit 1");
	for (size_t i = 0; i < 2; i++) {
		char command[] = "hostname", *argv[] = { command, NULL };
		fake_reset(S_CTX_REMOTE);
		fake_job.step = SLURM_INTERACTIVE_STEP;
		fake_setenv("SLURMD_NODENAME", "nid7");
		CHECK_INT(ce_mark_argv(argv, NULL), 0);
		fake_job.argv = argv;
		fake_job.argc = 1;
		if (plans[i] != NULL) {
			fake_setenv(CE_CARRY_COUNT, "1");
			fake_setenv(CE_CARRY_PART "0", plans[i]);
		}
		CHECK_INT(init_plugin(), SLURM_SUCCESS);
		CHECK_INT(fake_give_option("environment", "demo"), 0);
		CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
		CHECK_INT(WEXITSTATUS(test_in_child(task)), plans[i] != NULL ? 126 : 125);
		CHECK_CONTAINS(test_printed, plans[i] != NULL ? "mount source '/nothing': does not exist"
							      : "did not arrive");
		free(argv[0]);
		end_step();
	}
}

TEST("a batch script whose sbatch has sent a plan runs in the container, or not at all")
{
	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_job.step = SLURM_BATCH_SCRIPT;
	fake_setenv("SLURMD_NODENAME", "nid7");
	fake_setenv(CE_CARRY_COUNT, "1");
	fake_setenv(CE_CARRY_PART "0", CE_WORD_PLAN "fail");
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(WEXITSTATUS(test_in_child(task)), 126);
	CHECK_CONTAINS(test_printed, "mount source '/nothing': does not exist");
	CHECK(fake_getenv(CE_CARRY_COUNT) == NULL);
	end_step();
}

TEST("a step whose number cannot be learnt is not taken for a batch script")
{
	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_job.step_unknown = 1;
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(WEXITSTATUS(test_in_child(task)), 125);
	end_step();
}

TEST("the keyword for no container runs the command on the host, and no task sees it")
{
	static const char *const facts[] = { CE_CARRY_PROLOG, CE_CARRY_CHDIR, CE_CARRY_TIMES,
					     CE_CARRY_IMAGE,  CE_CARRY_JOB_CONTAINER,  CE_CARRY_MPI };

	for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
		carried = facts[i];
		begin_step_carrying(CE_WORD_HOST);
		CHECK(fake_getenv(CE_CARRY_COUNT) == NULL);
		CHECK(fake_getenv(CE_CARRY_PART "0") == NULL);
		CHECK(fake_getenv(carried) == NULL);
		runs_untouched();
		end_step();
	}
	carried = NULL;
}

/* ---- failures ---------------------------------------------------------------------------------- */

TEST("a plan that did not arrive fails every task with 125, once in words")
{
	begin_step_carrying(NULL);
	task_fails(125, "ce: error: nid7: the plan of the environment did not arrive on this node\n"
			CE_HELP_PLAN_NOT_ARRIVED "\n");
	fake_job.task = 1;
	task_fails(125, "");
	CHECK_TEXT(fake_job.log, "");
	end_step();
}

TEST("a text without its keyword is not a plan, and the command does not run on the host either")
{
	static const char *const texts[] = { "", "ready", "{}", "host", "host\nready", CE_WORD_PLAN };

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		begin_step_carrying(texts[i]);
		task_fails(125, "ce: error: nid7: the plan of the environment did not arrive on this "
				"node\n" CE_HELP_PLAN_NOT_ARRIVED "\n");
		end_step();
	}
}

/* Run slurmstepd's callbacks up to user_init, for a step whose option Slurm has dropped. */
static void begin_step_without_option(void)
{
	fake_setenv("SLURMD_NODENAME", "nid7");
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

#define DROPPED                                                                                    \
	"ce: error: nid7: srun has prepared this step for a container, but the option "            \
	"--environment did not arrive on this node\n" CE_HELP_PLAN_NOT_ARRIVED "\n"

TEST("a command that srun has marked does not run on the host if its option is lost")
{
	struct ce_error err = CE_ERROR_INIT;
	char command[] = "hostname", *argv[] = { command, NULL };

	CHECK_INT(ce_mark_argv(argv, &err), 0);
	CE_AUTO_FREE char *marked = argv[0];
	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_job.argc = 1;
	fake_job.argv = argv;
	begin_step_without_option();
	CHECK_TEXT(argv[0], "hostname");
	task_fails(125, DROPPED);
	fake_job.task = 1;
	task_fails(125, "");
	end_step();
}

TEST("a step with a plan from srun does not run on the host if its option is lost")
{
	install("exit 1");
	for (int i = 0; i < 2; i++) {
		fake_reset(S_CTX_REMOTE);
		fake_setenv(CE_CARRY_COUNT, i == 0 ? "1" : "");
		begin_step_without_option();
		task_fails(125, DROPPED);
		end_step();
	}
}

TEST("a step that srun has prepared for nothing needs no option")
{
	char command[] = "/bin/true", *argv[] = { command, NULL };

	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_job.argc = 1;
	fake_job.argv = argv;
	begin_step_without_option();
	runs_untouched();
	end_step();
}

static void step_in_another_process(void)
{
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	task();
}

TEST("where Slurm calls plugins in processes of their own, tasks fail and report why")
{
	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_setenv("SLURMD_NODENAME", "nid7");
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(WEXITSTATUS(test_in_child(step_in_another_process)), 125);
	CHECK_CONTAINS(test_printed, "ce: error: nid7: Slurm calls plugins in processes of their own");
	end_step();
}

TEST("where the plugstack.conf of a node is bad, tasks fail and report why")
{
	char unknown[] = "prefixx=/opt", *argv[] = { unknown, NULL };

	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_setenv(CE_CARRY_COUNT, "1");
	fake_setenv(CE_CARRY_PART "0", CE_WORD_HOST);
	CHECK_INT(slurm_spank_init(fake_spank(), 1, argv), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(WEXITSTATUS(test_in_child(task)), 125);
	CHECK_CONTAINS(test_printed, "plugstack.conf: unknown argument 'prefixx=/opt'");
	end_step();
}

TEST("a plan that lost a piece on its way is not run")
{
	install("exit 1");
	fake_reset(S_CTX_REMOTE);
	fake_setenv(CE_CARRY_COUNT, "2");
	fake_setenv(CE_CARRY_PART "0", CE_WORD_PLAN "ready");
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(WEXITSTATUS(test_in_child(task)), 125);
	CHECK_CONTAINS(test_printed, "did not arrive on this node");
	end_step();
}

TEST("what the launcher refuses fails the tasks with its words and its exit code")
{
	begin_step("fail");
	task_fails(126,
		   "ce: error: nid7: /etc/edf/x.toml:3: mount source '/nothing': does not exist\n"
		   "ce: hint: make it\n");
	fake_job.task = 1;
	task_fails(126, "");
	end_step();
}

TEST("a launcher that dies fails the tasks")
{
	begin_step("mute");
	task_fails(125, "ce: error: nid7: the launcher ended before the container was ready\n"
			CE_HELP_LAUNCHER_ENDED "\n");
	end_step();
}

TEST("a launcher that hangs fails the tasks at the deadline")
{
	CHECK_INT(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	begin_step("hang");
	task_fails(125, "ce: error: nid7: the container did not start within 2 s\n"
			CE_HELP_START_TIMEOUT "\n");
	end_step();
}

/* ---- a container ------------------------------------------------------------------------------- */

TEST("the variables that carry a plan are not seen by tasks or launcher")
{
	begin_step("mute");
	CHECK(fake_getenv(CE_CARRY_COUNT) == NULL);
	CHECK(fake_getenv(CE_CARRY_PART "0") == NULL);
	CHECK_TEXT(fake_getenv("SLURMD_NODENAME"), "nid7");
	end_step();
}

static ino_t host_namespace;

static void joined_task(void)
{
	char directory[64] = "", name[16] = "";
	struct stat own;
	int signal_at_end = 0;

	task();
	CHECK_TEXT(fake_getenv("CE_TEST"), "a=b\nc");
	CHECK(fake_getenv("REMOVED") == NULL);
	CHECK_TEXT(fake_getenv("SLURMD_NODENAME"), "nid7");
	CHECK(getcwd(directory, sizeof directory) != NULL);
	CHECK_TEXT(directory, "/usr");
	CHECK_INT(stat("/proc/self/ns/mnt", &own), 0);
	CHECK(own.st_ino != host_namespace);
	CHECK_INT(geteuid(), fake_job.uid);
	CHECK_INT(prctl(PR_GET_PDEATHSIG, &signal_at_end), 0);
	CHECK_INT(signal_at_end, SIGKILL);
	CHECK_INT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	/* a name by which Slurm does not take it for a process of its own */
	CHECK_INT(prctl(PR_GET_NAME, name), 0);
	CHECK_TEXT(name, "ce-task");
}

static void runs_joined(test_fn *run)
{
	int status = test_in_child(run);

	CHECK_TEXT(test_printed, "the command runs\n");
	CHECK_INT(status, 0);
}

TEST("every task joins the container: namespaces, environment, directory; it ends with slurmstepd")
{
	static char command[] = "sh";
	static char *argv[] = { command, NULL };
	struct stat own;

	begin_step("ready");
	CHECK_INT(stat("/proc/self/ns/mnt", &own), 0);
	host_namespace = own.st_ino;
	fake_job.argc = 1;
	fake_job.argv = argv;
	for (int i = 0; i < 3; i++)
		runs_joined(joined_task);
	end_step();
}

static void task_that_may_gain(void)
{
	task();
	CHECK_INT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
}

TEST("where the site lets them, tasks may gain privileges by execve")
{
	static char command[] = "sh";
	static char *argv[] = { command, NULL };

	more_of_plugstack = "no_new_privs=off";
	begin_step("ready");
	fake_job.argc = 1;
	fake_job.argv = argv;
	runs_joined(task_that_may_gain);
	end_step();
}

/* A filter that makes getpriority fail with ENOTUNIQ, and allows everything else. */
static const struct sock_filter profile[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTUNIQ),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static char seccomp[256];

/* Write the first `size` bytes of the profile, and let plugstack.conf name the file. */
static const char *use_profile(size_t size)
{
	const char *path = test_path(test_directory(), "tasks.bpf");
	CE_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	CHECK(fd >= 0);
	CHECK_INT(write(fd, profile, size), (long)size);
	snprintf(seccomp, sizeof seccomp, "seccomp=%s", path);
	more_of_plugstack = seccomp;
	return path;
}

static void confined_task(void)
{
	task();
	errno = 0;
	CHECK_INT(getpriority(PRIO_PROCESS, 0), -1);
	CHECK_INT(errno, ENOTUNIQ);
	CHECK_INT(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), SECCOMP_MODE_FILTER);
	CHECK_INT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
}

static void unconfined_task(void)
{
	task();
	CHECK_INT(prctl(PR_GET_SECCOMP, 0, 0, 0, 0), SECCOMP_MODE_DISABLED);
}

TEST("tasks have the site's seccomp profile, where there is one")
{
	static char command[] = "sh";
	static char *argv[] = { command, NULL };

	begin_step("ready");
	fake_job.argc = 1;
	fake_job.argv = argv;
	runs_joined(unconfined_task);
	end_step();
	use_profile(sizeof profile);
	begin_step("ready");
	fake_job.argc = 1;
	fake_job.argv = argv;
	runs_joined(confined_task);
	end_step();
}

/* Check that no task starts and that this reason is printed. */
static void is_refused(const char *why)
{
	static char command[] = "sh";
	static char *argv[] = { command, NULL };

	begin_step("ready");
	fake_job.argc = 1;
	fake_job.argv = argv;
	int status = test_in_child(task);
	CHECK_INT(WEXITSTATUS(status), 125);
	CHECK_CONTAINS(test_printed, why);
	CHECK_CONTAINS(test_printed, CE_HELP_PLUGIN_CONFIGURATION);
	CHECK(strstr(test_printed, "the command runs") == NULL);
	end_step();
}

TEST("a task whose seccomp profile is not available does not run")
{
	const char *path = use_profile(sizeof profile - 1);

	is_refused("the site's seccomp profile is not a filter of 1 to 4096 instructions");
	use_profile(0);
	is_refused("the site's seccomp profile is not a filter");
	use_profile(sizeof profile[0]);
	is_refused("the site's seccomp profile: Invalid argument");
	use_profile(sizeof profile);
	CHECK_INT(chmod(path, 0664), 0);
	is_refused("must be owned by root and writable by nobody else");
	CHECK_INT(chmod(path, 0644), 0);
	CHECK_INT(chown(path, 1, 0), 0);
	is_refused("must be owned by root and writable by nobody else");
	CHECK_INT(unlink(path), 0);
	is_refused("tasks.bpf: No such file or directory");
}

TEST("a step with a container has a line in the audit of its node, one on the host has none")
{
	char argument[256];
	size_t size = 0;
	const char *path = test_path(test_directory(), "audit.log");

	snprintf(argument, sizeof argument, "audit=%s", path);
	more_of_plugstack = argument;
	begin_step_carrying(CE_WORD_HOST);
	end_step();
	CHECK_INT(access(path, F_OK), -1);
	begin_step("fail");
	CHECK_INT(slurm_spank_task_post_fork(fake_spank(), 0, NULL), SLURM_SUCCESS);
	end_step();
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	CE_AUTO_FREE char *text = fd >= 0 ? ce_read_all(fd, 4096, &size) : NULL;
	CHECK(text != NULL);
	CHECK_CONTAINS(text, " plan-bytes=4 user-says-image=-\n");
	CHECK_INT(strcspn(text, "\n") + 1, size);
}

/* ---- task prologs ------------------------------------------------------------------------------ */

/* Slurm's configuration, a variable of slurmstepd. */
slurm_conf_t slurm_conf;

static const char *typed = "/bin/true";

static void prolog_stage(void)
{
	char command[64], argument[] = "x", *command_line[] = { command, argument, NULL };

	snprintf(command, sizeof command, "%s", typed);
	fake_job.argc = 2;
	fake_job.argv = command_line;
	CHECK_INT(slurm_spank_task_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	dprintf(STDERR_FILENO, "%s %s for %s in '%s'\n", strrchr(command_line[0], '/'), command_line[1],
		fake_getenv(CE_JOIN_COMMAND), strchr(fake_getenv(CE_JOIN_CONTAINER), '/'));
}

static void joins_later(void)
{
	CHECK_INT(test_in_child(prolog_stage), 0);
	CHECK_CONTAINS(test_printed, "/ce-join x for /bin/true in '/");
	end_step();
}

TEST("a task of a user with a task prolog joins after it, by a program before the command")
{
	carried = CE_CARRY_PROLOG;
	begin_step("ready");
	carried = NULL;
	CHECK(fake_getenv(CE_CARRY_PROLOG) == NULL);
	joins_later();
}

TEST("no task sees the check of a step whose command cannot be marked; the user's own prolog is restored")
{
	checked = "/mine";
	begin_step("ready");
	CHECK_TEXT(fake_getenv("SLURM_TASK_PROLOG"), "/mine");
	CHECK(fake_getenv(CE_CARRY_USER_PROLOG) == NULL);
	end_step();
	checked = "";
	begin_step("ready");
	CHECK(fake_getenv("SLURM_TASK_PROLOG") == NULL);
	end_step();
	prolog = "/x/ce-prolog/mine";
	begin_step("x");
	CHECK_TEXT(fake_getenv("SLURM_TASK_PROLOG"), prolog);
	end_step();
	checked = NULL;
}

static void joins_a_sent_file(void)
{
	char wanted[96];

	typed = "/sent/";
	CHECK_INT(test_in_child(prolog_stage), 0);
	typed = "/bin/true";
	snprintf(wanted, sizeof wanted, "/ce-join x for /sent/slurm_bcast_%d.%u_nid7 in '/", FAKE_JOB_ID,
		 fake_job.step);
	CHECK_CONTAINS(test_printed, wanted);
	end_step();
}

TEST("with a prolog, a file that Slurm has sent to a directory is executed by the name that Slurm gives it")
{
	carried = CE_CARRY_PROLOG;
	begin_step("ready");
	carried = NULL;
	joins_a_sent_file();
}

TEST("where the site has a TaskProlog, tasks join after it")
{
	char path[] = "/etc/slurm/task_prolog";

	slurm_conf.task_prolog = path;
	begin_step("ready");
	slurm_conf.task_prolog = NULL;
	joins_later();
}

static void program_stage(void)
{
	char file[] = "programs", *command_line[] = { file, strdup("0 /bin/true x\n"), NULL };
	CE_AUTO_FREE char *text = command_line[1];
	struct ce_error err = CE_ERROR_INIT;

	CHECK_INT(ce_multi_prog_prefix(&command_line[1], "/x/ce-join", &err), 0);
	fake_job.argc = 2;
	fake_job.argv = command_line;
	CHECK_INT(slurm_spank_task_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_TEXT(command_line[0], "programs");
	CHECK(fake_getenv(CE_JOIN_COMMAND) == NULL);
	CHECK(strchr(fake_getenv(CE_JOIN_CONTAINER), '/') != NULL);
	free(command_line[1]);
}

TEST("a program of --multi-prog joins with ce-join, which srun has put before it")
{
	begin_step("ready");
	CHECK_INT(test_in_child(program_stage), 0);
	CHECK_TEXT(test_printed, "");
	end_step();
}

TEST("a command that is not in the container is 127, one that cannot be executed 126")
{
	static char missing[] = "no-such-command", directory[] = "/usr";
	static char *argv[] = { missing, NULL };

	begin_step("ready");
	fake_job.argc = 1;
	fake_job.argv = argv;
	task_fails(127, "ce: error: nid7: no-such-command: command not found in the container\n"
			CE_HELP_COMMAND_NOT_FOUND "\n");
	argv[0] = directory;
	task_fails(126, "ce: error: nid7: /usr: cannot be executed in the container: it is a directory\n"
			CE_HELP_COMMAND_NOT_EXECUTABLE "\n");
	end_step();
}

/* End as a shell does that cannot execute a command; handles SIGALRM in the task below. */
static void fail(int number)
{
	(void)number;
	_exit(126);
}

/* Start a task that joins the container. SIGBUS then ends it like a crash, SIGALRM like a shell that cannot
 * execute a command. */
static pid_t start_task(void)
{
	int joined[2];
	char byte;

	CHECK_INT(pipe2(joined, O_CLOEXEC), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(freopen("/dev/null", "w", stderr) != NULL);
		task();
		close(joined[0]);
		signal(SIGALRM, fail);
		close(joined[1]);
		pause();
		_exit(0);
	}
	fake_job.task_pid = pid;
	CHECK_INT(slurm_spank_task_post_fork(fake_spank(), 0, NULL), SLURM_SUCCESS);
	close(joined[1]);
	CHECK_INT(read(joined[0], &byte, 1), 0);
	close(joined[0]);
	return pid;
}

static int death_of(pid_t pid)
{
	int status;

	CHECK_INT(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

/* Return the pid of the process that represents the guard. The fake launcher, which is the same program, may
 * not have ended yet. */
static pid_t find_guard(void)
{
	char link[64], program[512], name[32];
	const char *node = test_path(test_directory(), "libexec/container-engine/ce-guard");
	pid_t found = 0;
	DIR *dir = opendir("/proc");

	CHECK(dir != NULL);
	for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
		int pid = atoi(entry->d_name);
		snprintf(link, sizeof link, "/proc/%d/exe", pid);
		ssize_t length = pid > 1 ? readlink(link, program, sizeof program - 1) : -1;
		program[length > 0 ? length : 0] = '\0';
		if (strcmp(program, node) != 0)
			continue;
		snprintf(link, sizeof link, "/proc/%d/comm", pid);
		CE_AUTO_FD comm = open(link, O_RDONLY | O_CLOEXEC);
		length = comm >= 0 ? read(comm, name, sizeof name - 1) : -1;
		name[length > 0 ? length : 0] = '\0';
		if (strcmp(name, "fake-guard\n") == 0)
			found = pid;
	}
	closedir(dir);
	CHECK(found > 1);
	return found;
}

/* Collect the stderr of this process and its children from here on, for read_stderr. Return the descriptor
 * that was stderr before. */
static int keep_stderr(void)
{
	int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	int file = memfd_create("stderr", MFD_CLOEXEC);

	CHECK(before >= 0 && file >= 0);
	CHECK_INT(dup2(file, STDERR_FILENO), STDERR_FILENO);
	close(file);
	return before;
}

/* Return what was collected. Restore stderr first, so that the message of a failed check is seen. */
static const char *read_stderr(int before)
{
	static char text[4096];
	ssize_t length = pread(STDERR_FILENO, text, sizeof text - 1, 0);

	CHECK_INT(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
	text[length > 0 ? length : 0] = '\0';
	return text;
}

TEST("when the guard is killed its tasks are, too, and the cause is reported once")
{
	int before = keep_stderr();
	begin_step("ready");
	fake_setenv("SLURMD_NODENAME", "n7");
	pid_t first = start_task(), second = start_task();
	runs_joined(task);
	CHECK_INT(kill(find_guard(), SIGKILL), 0);
	int ends[] = { death_of(first), death_of(second) };
	const char *said = read_stderr(before);
	CHECK_INT(ends[0], SIGKILL);
	CHECK_INT(ends[1], SIGKILL);
	CHECK_TEXT(fake_job.log,
		   "container_engine: the process that guards the container was killed; "
		   "the tasks of this node are killed\n");
	CHECK_TEXT(said, "ce: error: n7: the process that guards the container was killed\n"
		   CE_HELP_CONTAINER_DIED "\n");
	end_step();
}

TEST("tasks that find their container dead report why, once, before slurmstepd can")
{
	begin_step("ready");
	CHECK_INT(test_in_child(task), 0);
	CE_AUTO_FD guard = ce_pidfd_open(find_guard());
	CHECK_INT(ce_pidfd_kill(guard, SIGKILL), 0);
	CHECK(test_ends(guard));
	fake_job.task = 1;
	task_fails(125, "ce: error: nid7: the process that guards the container was killed\n"
			CE_HELP_CONTAINER_DIED "\n");
	fake_job.task = 0;
	task_fails(125, "");
	end_step();
	CHECK_TEXT(fake_job.log, "");
}

TEST("an ordinary end is silent, ends the container and leaves no descriptor")
{
	int before = test_open_fds();

	begin_step("ready");
	pid_t pid = start_task();
	runs_joined(task);
	CE_AUTO_FD guard = ce_pidfd_open(find_guard());
	CHECK_INT(kill(pid, SIGTERM), 0);
	CHECK_INT(death_of(pid), SIGTERM);
	CHECK_INT(slurm_spank_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK(test_ends(guard));
	CHECK_TEXT(fake_job.log, "");
	ce_close_fd(&guard);
	CHECK_INT(test_open_fds(), before);
	fake_reset(S_CTX_REMOTE);
}

/* Do what slurmstepd does after it has waited for a task. */
static void task_exits(pid_t pid)
{
	CHECK_INT(waitpid(pid, &fake_job.exit_status, 0), pid);
	CHECK_INT(slurm_spank_task_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

TEST("the end of the last task ends the session, the end of another does not")
{
	begin_step("ready");
	fake_job.local_tasks = 2;
	pid_t first = start_task(), second = start_task();
	CE_AUTO_FD guard = ce_pidfd_open(find_guard());
	CHECK_INT(kill(first, SIGTERM), 0);
	task_exits(first);
	CHECK(!ce_wait_readable(guard, ce_now_ms() + 100));
	CHECK_INT(kill(second, SIGTERM), 0);
	task_exits(second);
	CHECK(ce_wait_readable(guard, ce_now_ms()));
	CHECK_TEXT(fake_job.log, "");
	end_step();
}

TEST("a step that Slurm kills as a whole is not taken for a container that died")
{
	int before = keep_stderr();
	begin_step("ready");
	fake_job.local_tasks = 2;
	pid_t first = start_task(), second = start_task();
	/* kill in the worst order: the guard first */
	CHECK_INT(kill(find_guard(), SIGKILL), 0);
	CHECK_INT(kill(first, SIGKILL), 0);
	CHECK_INT(kill(second, SIGKILL), 0);
	task_exits(first);
	task_exits(second);
	CHECK_TEXT(read_stderr(before), "");
	CHECK_TEXT(fake_job.log, "");
	end_step();
}

TEST("a container that dies is reported although its tasks break down by themselves at once")
{
	int before = keep_stderr();
	begin_step("ready");
	fake_job.local_tasks = 1;
	pid_t pid = start_task();
	CHECK_INT(kill(find_guard(), SIGKILL), 0);
	CHECK_INT(kill(pid, SIGBUS), 0);
	task_exits(pid);
	CHECK_CONTAINS(read_stderr(before), "the process that guards the container was killed\n");
	end_step();
}

static void break_before_death(int how)
{
	int before = keep_stderr();
	begin_step("ready");
	fake_job.local_tasks = 1;
	pid_t pid = start_task(), guard = find_guard();
	pid_t later = fork();
	CHECK(later >= 0);
	if (later == 0) {
		poll(NULL, 0, 50);
		kill(guard, SIGKILL);
		_exit(0);
	}
	CHECK_INT(kill(pid, how), 0);
	task_exits(pid);
	CHECK_INT(waitpid(later, NULL, 0), later);
	CHECK_CONTAINS(read_stderr(before), "the process that guards the container was killed\n");
	end_step();
}

TEST("a container whose tasks break down before it is seen to die is reported")
{
	break_before_death(SIGBUS);
}

TEST("a container whose tasks fail before it is seen to die is reported")
{
	break_before_death(SIGALRM);
}

static void become_a_task(void)
{
	CHECK(freopen("/dev/null", "w", stderr) != NULL);
	task();
	/* as after the execve by which Slurm starts the command */
	prctl(PR_SET_DUMPABLE, 1);
	setsid();
	/* a process that the task has started and that has lost its parent */
	if (fork() == 0)
		prctl(PR_SET_PDEATHSIG, 0);
}

TEST("processes that a task left behind in the container end with the step")
{
	test_needs_root();
	begin_step("ready");
	pid_t pid = test_idle_process(become_a_task);
	CHECK_INT(slurm_spank_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(death_of(pid), SIGKILL);
	fake_reset(S_CTX_REMOTE);
}
