/* Finding a job's option, after its variables have been removed, in the processes that were started with
 * them. */
#define _GNU_SOURCE
#include "common/inherit.h"

#include <errno.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_spank.h"
#include "generated/help.h"
#include "harness.h"

static const char *option;
#include "installation.h"

#define ENVIRONMENT CE_INHERITED "environment"
#define EDF CE_INHERITED "edf"

/* Return the memory in which the kernel keeps the environment that this process was started with. */
static char *started_with(size_t *size)
{
	char line[4096] = "";
	unsigned long start = 0, end = 0;
	FILE *stat = fopen("/proc/self/stat", "re");

	CHECK(stat != NULL && fgets(line, sizeof line, stat) != NULL);
	fclose(stat);
	char *field = strrchr(line, ')') + 1;
	for (int number = 3; number <= 51; number++) {
		field = strchr(field + 1, ' ');
		CHECK(field != NULL);
		if (number == 49)
			start = strtoul(field, NULL, 10);
		if (number == 50)
			end = strtoul(field, NULL, 10);
	}
	*size = end - start;
	return (char *)(uintptr_t)start;
}

/* Let this process seem to have been started with this variable alone. */
static void start_with(const char *variable)
{
	size_t size = 0;
	char *area = started_with(&size);
	static char *nothing[] = { NULL };

	CHECK(strlen(variable) < size);
	environ = nothing;
	memset(area, 0, size);
	memcpy(area, variable, strlen(variable));
}

/* Run a function in a child and check that it succeeds. */
static void in_child(test_fn *run)
{
	int status = -1;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		run();
		_exit(0);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
}

static void finds_demo(void)
{
	int fds = test_open_fds();

	ce_inherit(1);
	CHECK_TEXT(getenv(ENVIRONMENT), "demo");
	CHECK_TEXT(ce_inherited(&option), "demo");
	CHECK_INT(test_open_fds(), fds);
}

static void finds_nothing(void)
{
	ce_inherit(1);
	CHECK(ce_inherited(&option) == NULL);
}

static void demo_in_child(void)
{
	start_with("OTHER=1");
	in_child(finds_demo);
}

TEST("an option that is gone from the environment is found in that with which an ancestor was started")
{
	start_with(ENVIRONMENT "=demo");
	in_child(demo_in_child);
}

TEST("the name that the shell of salloc has is found as well")
{
	start_with(CE_INHERITED_PLAIN "environment=demo");
	in_child(finds_demo);
	setenv(CE_INHERITED_PLAIN "environment", "demo", 1);
	finds_demo();
}

static void start_nearer(void)
{
	start_with(ENVIRONMENT "=demo");
	in_child(finds_demo);
}

TEST("of several ancestors the nearest is used")
{
	start_with(ENVIRONMENT "=farther");
	in_child(start_nearer);
}

/* Leave this process room for this many descriptors more than it has. */
static void leave_free(int more)
{
	int highest = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct rlimit few = { (rlim_t)(highest + more), (rlim_t)(highest + more) };

	CHECK(highest >= 0);
	close(highest);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static int room;

static void cannot_look(void)
{
	leave_free(room);
	alarm(5); /* it once tried without end */
	errno = 0;
	CHECK_INT(ce_inherit(1), -1);
	CHECK_INT(errno, EMFILE);
	CHECK(ce_inherited(&option) == NULL);
}

TEST("without free descriptors the walk to the ancestors ends, and says that it does not know")
{
	start_with(ENVIRONMENT "=demo");
	for (room = 0; room < 3; room++)
		in_child(cannot_look);
	room = 3;
}

static void looks_with_three(void)
{
	leave_free(3);
	finds_demo();
}

TEST("three free descriptors are enough for the walk")
{
	start_with(ENVIRONMENT "=demo");
	in_child(looks_with_three);
}

static void submit_without_descriptors(void)
{
	fake_reset(S_CTX_LOCAL);
	leave_free(1);
	alarm(5);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
}

TEST("srun that cannot find out what it inherits is refused, as the job may have an environment")
{
	load_user_part(); /* the working tree may be root's alone */
	if (getuid() == 0) /* who inherits from no process */
		CHECK_INT(setresuid(65534, 65534, 65534), 0);
	int status = test_in_child(submit_without_descriptors);

	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 125);
	CHECK_TEXT(test_printed, "ce: error: cannot find out whether the job has an environment: "
				 "Too many open files\n" CE_HELP_LIMIT_REACHED "\n");
}

static void finds_alias(void)
{
	ce_inherit(1);
	CHECK_TEXT(getenv(EDF), "demo");
	CHECK(getenv(ENVIRONMENT) == NULL);
}

TEST("the option's alias is found under its own name")
{
	start_with(EDF "=demo");
	in_child(finds_alias);
}

TEST("what the environment still has is not looked for elsewhere")
{
	start_with(ENVIRONMENT "=other");
	setenv(EDF, "demo", 1);
	in_child(finds_alias);
}

TEST("another plugin's option is left alone")
{
	start_with("SLURM_SPANK__SLURM_SPANK_OPTION_container_engine2_environment=demo");
	in_child(finds_nothing);
}

TEST("a step that is to inherit nothing does not, and its tasks do not see how that was arranged")
{
	start_with(ENVIRONMENT "=demo");
	setenv(CE_INHERITED_PLAIN "environment", "demo", 1);
	setenv(ENVIRONMENT, "demo", 1);
	setenv(CE_INHERIT, "no", 1);
	in_child(finds_nothing);
	finds_nothing();
	CHECK(getenv(CE_INHERIT) == NULL && getenv(CE_INHERITED_PLAIN "environment") == NULL);
}

static void finds_nothing_as_other(void)
{
	CHECK_INT(setresuid(65534, 65534, 65534), 0);
	finds_nothing();
}

TEST("processes of other users are not asked")
{
	test_needs_root();
	start_with(ENVIRONMENT "=demo");
	in_child(finds_nothing_as_other);
}

static void root_finds_nothing(void)
{
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK(ce_inherited(&option) == NULL);
}

TEST("root's srun inherits from no process, because a user who calls sudo chooses its environment")
{
	test_needs_root();
	start_with(ENVIRONMENT "=demo");
	in_child(root_finds_nothing);
}

TEST("a process of another user, which root could read, has nothing that root inherits")
{
	int status, ends[2];
	char byte = 0;

	test_needs_root();
	start_with(ENVIRONMENT "=demo");
	CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_INT(read(ends[0], &byte, 1), 1);
		finds_nothing();
		_exit(0);
	}
	CHECK_INT(setresuid(65534, 65534, 65534), 0);
	CHECK_INT(prctl(PR_SET_DUMPABLE, 1), 0);
	CHECK_INT(write(ends[1], &byte, 1), 1);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
}

static void submit_without_slurm(void)
{
	setenv(ENVIRONMENT, "demo", 1);
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
}

static void submit_without_inheriting(void)
{
	setenv(CE_INHERIT, "no", 1);
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

TEST("srun reports a step that leaves its job's environment, whatever name the option has")
{
	static const char *const names[] = { ENVIRONMENT, CE_INHERITED_PLAIN "environment", EDF, NULL };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		clearenv();
		if (names[i] != NULL)
			setenv(names[i], "demo", 1);
		submit_without_inheriting();
		CHECK_TEXT(fake_job.log, names[i] != NULL ? "CE_INHERIT=no: this step runs on the host, "
							    "not in 'demo', which the job has\n"
							  : "");
		slurm_spank_exit(fake_spank(), 0, NULL);
	}
}

TEST("an empty variable that asks for a container is an option without a value, which the planner refuses")
{
	static const char *const names[][2] = { { "CE_ENVIRONMENT", "environment" },
						{ "PYXIS_CONTAINER_IMAGE", "container_image" },
						{ "PYXIS_CONTAINER_NAME", "container_name" } };
	char inherited[96];

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		clearenv();
		setenv(names[i][0], "", 1);
		fake_reset(S_CTX_LOCAL);
		CHECK_INT(init_plugin(), SLURM_SUCCESS);
		snprintf(inherited, sizeof inherited, CE_INHERITED "%s", names[i][1]);
		CHECK_TEXT(getenv(inherited), "");
		slurm_spank_exit(fake_spank(), 0, NULL);
	}
}

TEST("an empty variable says nothing where an option, the job, or CE_INHERIT does")
{
	clearenv();
	setenv("CE_ENVIRONMENT", "", 1);
	setenv(ENVIRONMENT, "demo", 1);
	fake_reset(S_CTX_LOCAL);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
	CHECK_TEXT(getenv(ENVIRONMENT), "demo");
	slurm_spank_exit(fake_spank(), 0, NULL);
	clearenv();
	setenv("CE_ENVIRONMENT", "", 1);
	setenv("PYXIS_CONTAINER_IMAGE", "", 1);
	submit_without_inheriting();
	CHECK_TEXT(fake_job.log, "");
	CHECK(getenv(ENVIRONMENT) == NULL && getenv(CE_INHERITED "container_image") == NULL);
}

TEST("an option that Slurm does not hand on, as a later one may do, is refused and never forgotten")
{
	int status = test_in_child(submit_without_slurm);

	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), 125);
	CHECK_TEXT(test_printed,
		   "ce: error: --environment=demo: the job has this option, but Slurm does not pass it "
		   "to this command\n" CE_HELP_ENVIRONMENT_NOT_INHERITED "\n");
}
