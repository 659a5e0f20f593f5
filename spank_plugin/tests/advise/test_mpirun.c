#define _GNU_SOURCE
#include "advise/advise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generated/help.h"
#include "harness.h"

static const char *get(void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

static const struct ce_variables variables = { NULL, get, NULL };

/* Make bin/NAME, a program, and the link `command` to it, in an image that has nothing else. */
static void image(const char *name, const char *command)
{
	const char *top = test_directory();
	char path[512];

	snprintf(path, sizeof path, "%s/bin", top);
	CHECK_INT(mkdir(path, 0755), 0);
	CHECK_INT(chdir(path), 0);
	CHECK_INT(setenv("PATH", path, 1), 0);
	test_file(path, name, "#!/bin/sh\n", 0755);
	if (strcmp(name, command) != 0)
		CHECK_INT(symlink(name, command), 0);
	CHECK_INT(setenv("SLURM_JOB_ID", "7", 1), 0);
	CHECK_INT(setenv("SLURM_NNODES", "1", 1), 0);
}

static int check(int argc, char **argv, const char **doubt, struct ce_error *err)
{
	*doubt = NULL;
	return ce_check_mpirun(argv[0], argc, argv, &variables, doubt, err);
}

/* Return 1 if the command is refused, 2 if there is a warning, 0 if neither. */
static int verdict(char *command, char *option)
{
	struct ce_error err = CE_ERROR_INIT;
	char program[] = "ring";
	char *argv[] = { command, option, program, NULL };
	const char *doubt;
	int refused = check(3, argv, &doubt, &err) < 0;

	ce_error_clear(&err);
	return refused ? 1 : doubt != NULL ? 2 : 0;
}

TEST("an mpirun of MPICH in a job is refused: it needs srun even for its own node")
{
	struct ce_error err = CE_ERROR_INIT;
	char command[] = "mpirun", option[] = "-np", count[] = "2", program[] = "ring", other[] = "mpiexec";
	char *argv[] = { command, option, count, program, NULL };
	const char *doubt;

	image("mpiexec.hydra", "mpirun");
	CHECK_INT(check(4, argv, &doubt, &err), -1);
	CHECK_INT(err.exit_code, CE_EXIT_ENGINE);
	CHECK_TEXT(err.below, CE_HELP_MPIRUN_INSIDE);
	CHECK_TEXT(ce_error_text(&err),
		   "mpirun: in a Slurm job, this mpirun of MPICH or Intel MPI starts its processes "
		   "with Slurm's srun, which is not in the container");
	ce_error_clear(&err);
	/* Intel MPI's mpirun is a script beside mpiexec.hydra */
	test_file(".", "mpiexec", "#!/bin/sh\n", 0755);
	CHECK_INT(verdict(other, option), 1);
}

TEST("an mpirun of Open MPI is refused only where there are several nodes")
{
	char command[] = "mpirun", option[] = "-np", host[64];

	image("orterun", "mpirun");
	CHECK_INT(gethostname(host, sizeof host), 0);
	CHECK_INT(setenv("SLURMD_NODENAME", host, 1), 0);
	CHECK_INT(verdict(command, option), 0);
	CHECK_INT(setenv("SLURMD_NODENAME", "another", 1), 0);
	CHECK_INT(verdict(command, option), 2);
	CHECK_INT(setenv("SLURM_NNODES", "2", 1), 0);
	CHECK_INT(verdict(command, option), 1);
	char hosts[] = "--host";
	CHECK_INT(verdict(command, hosts), 0);
}

TEST("an mpirun that starts its processes in another way, or none, is left alone")
{
	static const char *const chosen[] = { "HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP" };
	char command[] = "mpirun", option[] = "-np", launcher[] = "-launcher", version[] = "--version",
	     other[] = "mpirunner";
	char *alone[] = { command, NULL };
	struct ce_error err = CE_ERROR_INIT;
	const char *doubt;

	image("mpiexec.hydra", "mpirun");
	CHECK_INT(verdict(command, launcher), 0);
	CHECK_INT(verdict(command, version), 0);
	CHECK_INT(verdict(other, option), 0);
	CHECK_INT(check(1, alone, &doubt, &err), 0);
	for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
		CHECK_INT(setenv(chosen[i], "ssh", 1), 0);
		CHECK_INT(verdict(command, option), 0);
		CHECK_INT(setenv(chosen[i], "slurm", 1), 0);
		CHECK_INT(verdict(command, option), 1);
	}
	CHECK_INT(unsetenv("SLURM_JOB_ID"), 0);
	CHECK_INT(verdict(command, option), 0);
}

TEST("an mpirun that finds a srun runs, with a warning")
{
	char command[] = "mpirun", option[] = "-np";

	image("mpiexec.hydra", "mpirun");
	test_file(".", "srun", "#!/bin/sh\n", 0755);
	CHECK_INT(verdict(command, option), 2);
}

TEST("an unknown mpirun is left alone")
{
	char command[] = "mpirun", option[] = "-np";

	image("mpirun", "mpirun");
	CHECK_INT(setenv("SLURM_NNODES", "2", 1), 0);
	CHECK_INT(verdict(command, option), 0);
}

TEST("an mpirun that a script calls is doubted in a job of several nodes only")
{
	image("mpiexec.hydra", "mpirun");
	CHECK_INT(ce_is_mpirun("mpirun"), 1);
	CHECK_INT(ce_is_mpirun("mpiexec.hydra.not"), 0);
	CHECK(ce_doubt_mpirun(&variables) == NULL);
	CHECK_INT(setenv("SLURM_NNODES", "2", 1), 0);
	CHECK_CONTAINS(ce_doubt_mpirun(&variables), "srun, which is not in the container");
	CHECK_INT(setenv("HYDRA_LAUNCHER", "ssh", 1), 0);
	CHECK(ce_doubt_mpirun(&variables) == NULL);
	CHECK_INT(setenv("HYDRA_LAUNCHER", "slurm", 1), 0);
	test_file(".", "srun", "#!/bin/sh\n", 0755);
	CHECK_CONTAINS(ce_doubt_mpirun(&variables), "outside this container");
}
