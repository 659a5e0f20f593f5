#define _GNU_SOURCE
#include "advise/advise.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "generated/help.h"
#include "harness.h"

static void helps(const char *command, const char *words)
{
	const char *help = ce_not_found_help(command);

	CHECK(strncmp(help, "ce: hint: ", 10) == 0);
	CHECK(strstr(help, words) != NULL);
	CHECK(strstr(help, "\nce: see: ce help command-not-found") != NULL);
}

TEST("what is never or rarely in an image has a hint that says what works instead")
{
	helps("apt-get", "ce build");
	helps("pip", "python3 -m pip");
	helps("sudo", "same user");
	helps("gdb", "ce help interactive");
	helps("torchrun", "ce help pytorch");
	helps("jupyter", "ce help jupyter");
	helps("nvidia-smi", "devices = [\"nvidia.com/gpu=all\"]");
	helps("module", "modules are the host's");
	helps("srun", "com.hooks.slurm.enabled");
	helps("docker", "ce init");
	helps("mpirun", "srun --mpi=");
	helps("cd", "sh -c");
	helps("mpicc", "…-devel");
	helps("top", "srun --overlap --jobid=JOB");
	helps("numactl", "srun --cpu-bind=");
	helps("vim", "on the host");
	helps("./train.py", "workdir = \"${PWD}\"");
}

static void helps_in_job(const char *job, char *second, const char *wanted)
{
	char ps[] = "ps", *argv[] = { ps, second, NULL };
	const char *help = ce_help_in_job(ce_not_found_help("ps"), job, argv);
	CE_AUTO_FREE char *line = NULL;

	CHECK(asprintf(&line, "too: srun --overlap %s\nce: see: ce help command-not-found", wanted) > 0);
	CHECK(strstr(help, line) != NULL);
}

TEST("in a job the hint for tools of the node is a command to copy")
{
	char words[] = "aux", quotes[] = "a b", empty[] = "", most[300];
	char *argv[] = { words, NULL };

	memset(most, 'x', sizeof most - 1);
	most[sizeof most - 1] = '\0';
	helps_in_job("3574", words, "--jobid=3574 ps aux");
	helps_in_job("3574", NULL, "--jobid=3574 ps");
	helps_in_job("3574", quotes, "--jobid=3574 ps");
	helps_in_job("3574", empty, "--jobid=3574 ps");
	helps_in_job("3574", most, "--jobid=3574 ps");
	helps_in_job(NULL, words, "--jobid=JOB COMMAND");
	helps_in_job("3574;x", words, "--jobid=JOB COMMAND");
	CHECK_TEXT(ce_help_in_job(CE_HELP_COMMAND_NOT_FOUND, "3574", argv), CE_HELP_COMMAND_NOT_FOUND);
}

TEST("a word that is not a command gets a hint that says where it belongs")
{
	helps("python train.py --x", "leave out the quotes");
	helps("./run.sh 1", "leave out the quotes");
	helps("MODE=fast", "NAME=VALUE srun");
	helps("MODE=a b", "NAME=VALUE srun");
	helps("/data:/data:ro", "mounts = [\"SOURCE:DESTINATION\"]");
}

TEST("a file of the current directory has a hint to write ./ before its name")
{
	const char *top = test_directory();

	test_file(top, "train.py", "", 0644);
	CHECK_INT(chdir(top), 0);
	helps("train.py", "write ./ before it");
	helps("toool", "looked up in the image");
	CHECK_INT(chdir("/"), 0);
	helps("train.py", "looked up in the image");
}

TEST("for a relative path the hint names the directory in which it was looked for, if that is one line")
{
	const char *top = test_directory();
	char directory[512], wanted[600];

	snprintf(directory, sizeof directory, "%s/job", top);
	CHECK_INT(mkdir(directory, 0755), 0);
	CHECK_INT(chdir(directory), 0);
	snprintf(wanted, sizeof wanted, "it is looked for in '%s', where the task starts; for your own files",
		 directory);
	helps("./run.sh", wanted);
	snprintf(directory, sizeof directory, "%s/a\nce: error: b", top);
	CHECK_INT(mkdir(directory, 0755), 0);
	CHECK_INT(chdir(directory), 0);
	helps("bin/run", "a relative path begins where the task starts");
	CHECK_INT(rmdir(directory), 0);
	helps("bin/run", "a relative path begins where the task starts");
	CHECK_INT(chdir("/"), 0);
}

TEST("all other commands have the usual hint")
{
	static const char *const others[] = {
		"toool", "ap", "=x", "9=x", "a.b=x", "", "/opt/apt-get", "apt-get-apt-get-apt-get-apt-get"
	};

	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		CHECK_TEXT(ce_not_found_help(others[i]), CE_HELP_COMMAND_NOT_FOUND);
}

/* Return whether there is a warning if the command line is started in a directory with train.py and then
 * continues in another. */
static int warns(char *first, char *second, char *third)
{
	char *argv[] = { first, second, third, NULL }, line[CE_SCRIPT_LINE], wanted[CE_SCRIPT_LINE];
	const char *top = test_directory();
	int count = second == NULL ? 1 : third == NULL ? 2 : 3;

	test_file(top, "train.py", "", 0644);
	CHECK_INT(chdir(top), 0);
	CE_AUTO_FD here = open(".", O_PATH | O_CLOEXEC);
	CHECK(!ce_script_is_elsewhere(count, argv, here, top, line));
	CHECK_INT(chdir("/"), 0);
	if (!ce_script_is_elsewhere(count, argv, here, top, line))
		return 0;
	snprintf(wanted, sizeof wanted,
		 "'train.py' is in '%s' on the host, but not in '/', where the task starts in the container: "
		 "write mounts = [\"${PWD}\"] and workdir = \"${PWD}\" into the environment",
		 top);
	CHECK_TEXT(line, wanted);
	return 1;
}

TEST("a script of the submit directory that the container does not show is reported")
{
	char python[] = "python3", path[] = "/usr/bin/python3.11", script[] = "train.py", option[] = "-u";

	CHECK(warns(python, script, NULL));
	CHECK(warns(python, option, script));
	CHECK(warns(path, script, option));
}

TEST("there is no warning where it would be a guess")
{
	char python[] = "python3", other[] = "tar", config[] = "python3-config", script[] = "train.py";
	char module[] = "-m", absent[] = "absent.py", directory[] = ".";

	CHECK(!warns(other, script, NULL));
	CHECK(!warns(config, script, NULL));
	CHECK(!warns(python, module, script));
	CHECK(!warns(python, absent, script));
	CHECK(!warns(python, directory, NULL));
	CHECK(!warns(python, NULL, NULL));
}
