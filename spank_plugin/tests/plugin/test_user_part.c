/* The part of the plugin that is a library of its own: who loads it, and what happens without it. */
#define _GNU_SOURCE
#include "plugin/user_part.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_spank.h"
#include "generated/help.h"
#include "harness.h"
#include "installation.h"

#define MISSING "cannot load a part of the plugin: container_engine_user.so: not found"

/* Initialize the plugin where its library is not found: in a program whose file is not there. */
static void init_alone(spank_context_t context)
{
	BECOME("srun\0hostname\0");
	fake_reset(context);
	CHECK_INT(slurm_spank_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
}

static void submit_alone(void)
{
	init_alone(S_CTX_LOCAL);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
}

TEST("a command is refused, whatever it asks for, where the part that would know is missing")
{
	CHECK_INT(WEXITSTATUS(test_in_child(submit_alone)), 125);
	CHECK_CONTAINS(test_printed, "ce: error: " MISSING);
	CHECK_CONTAINS(test_printed, CE_HELP_PLUGIN_CONFIGURATION "\n");
}

static void task_alone(void)
{
	slurm_spank_task_init(fake_spank(), 0, NULL);
}

TEST("a task of a container ends where that part is missing, and says so once for each node")
{
	init_alone(S_CTX_REMOTE);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(WEXITSTATUS(test_in_child(task_alone)), 125);
	/* what slurmstepd has found out before comes first */
	CHECK_CONTAINS(test_printed, "the plan of the environment did not arrive on this node");
	fake_job.task = 1;
	CHECK_INT(WEXITSTATUS(test_in_child(task_alone)), 125);
	CHECK_TEXT(test_printed, "");
}

TEST("a part of another version is refused, and named")
{
	struct ce_error err = CE_ERROR_INIT;
	char wanted[1024];
	const char *path = test_built("other_user.so");

	CHECK(ce_load_user_part_from(path, &err) == NULL);
	snprintf(wanted, sizeof wanted,
		 "cannot load a part of the plugin: %s: not of version test, as the plugin is", path);
	CHECK_TEXT(ce_error_text(&err), wanted);
	CHECK_TEXT(ce_error_below(&err, ""), CE_HELP_PLUGIN_CONFIGURATION);
	ce_error_clear(&err);
	CHECK(ce_load_user_part_from("/no/such.so", &err) == NULL);
	CHECK_CONTAINS(ce_error_text(&err), "/no/such.so: cannot open shared object file");
	ce_error_clear(&err);
}

TEST("slurmstepd loads none of it, nor does a task without a container")
{
	init_alone(S_CTX_REMOTE);
	CHECK_INT(slurm_spank_user_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_task_init(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_task_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK_INT(slurm_spank_exit(fake_spank(), 0, NULL), SLURM_SUCCESS);
	CHECK(dlopen(test_built("container_engine_user.so"), RTLD_LAZY | RTLD_NOLOAD) == NULL);
	CHECK_TEXT(fake_job.log, "");
}
