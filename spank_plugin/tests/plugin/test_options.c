/* The options of pyxis: registered unless pyxis is loaded, and passed to the planner unchanged. */
#define _GNU_SOURCE
#include "plugin/options.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/inherit.h"
#include "fake_spank.h"
#include "generated/help.h"
#include "harness.h"
#include "installation.h"
#include "plugin/carry.h"

#define SAYS_WORDS "echo plan; printf '[%s]' \"$@\""

static void submit(spank_context_t context)
{
	fake_reset(context);
	CHECK_INT(init_plugin(), SLURM_SUCCESS);
}

static const char *planned(void)
{
	CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	const char *words = getenv(CE_CARRY_PART "0");
	slurm_spank_exit(fake_spank(), 0, NULL);
	return words;
}

TEST("help has the mark by which tools look for pyxis, and the forms of its arguments")
{
	submit(S_CTX_LOCAL);
	for (int i = 2; i < fake_job.option_count; i++) {
		const struct spank_option *option = &fake_job.options[i];
		CHECK(strncmp(option->usage, "[pyxis] ", 8) == 0);
		CHECK_INT(option->has_arg, option->arginfo != NULL);
	}
	CHECK_TEXT(fake_job.options[2].name, "container-image");
	CHECK_TEXT(fake_job.options[2].arginfo, "[USER@][REGISTRY#]IMAGE[:TAG]|PATH");
	CHECK_TEXT(fake_job.options[5].arginfo, "NAME");
	CHECK_TEXT(fake_job.options[17].arginfo, "NS[,NS...]");
	slurm_spank_exit(fake_spank(), 0, NULL);
}

TEST("the planner gets the options in their order, with and without an environment")
{
	install(SAYS_WORDS);
	submit(S_CTX_LOCAL);
	CHECK_INT(fake_give_option("container-image", "a b"), 0);
	CHECK_INT(fake_give_option("no-container-mount-home", NULL), 0);
	CHECK_INT(fake_give_option("container-mounts", "/a:/b,/c"), 0);
	CHECK_TEXT(planned(), "plan\n[--for][srun][--container-image=a b][--no-container-mount-home]"
			      "[--container-mounts=/a:/b,/c][--]");
	submit(S_CTX_LOCAL);
	CHECK_INT(fake_give_option("container-writable", ""), 0);
	CHECK_INT(fake_give_option("environment", "--demo"), 0);
	CHECK_TEXT(planned(), "plan\n[--for][srun][--container-writable][--][--demo]");
}

TEST("variables of pyxis ask for a container, and the planner reads the others")
{
	install(SAYS_WORDS);
	setenv("PYXIS_CONTAINER_IMAGE", "/v.sqsh", 1);
	setenv("PYXIS_CONTAINER_WRITABLE", "1", 1);
	submit(S_CTX_LOCAL);
	/* as Slurm does with options of the job */
	CHECK_TEXT(getenv(CE_INHERITED "container_image"), "/v.sqsh");
	CHECK_INT(fake_give_option("container-image", getenv(CE_INHERITED "container_image")), 0);
	CHECK_TEXT(planned(),
		   "plan\n[--for][srun][--container-variables][--container-image=/v.sqsh][--]");
}

TEST("a variable of pyxis that asks for no container changes nothing")
{
	install("exit 1");
	setenv("PYXIS_CONTAINER_MOUNTS", "/a", 1);
	setenv("PYXIS_CONTAINER_WORKDIR", "", 1);
	submit(S_CTX_LOCAL);
	CHECK(planned() == NULL);
}

TEST("CE_ENVIRONMENT names the environment of commands without the option; options and the job's environment "
     "take precedence")
{
	setenv("CE_ENVIRONMENT", "mine", 1);
	submit(S_CTX_LOCAL);
	CHECK_TEXT(getenv(CE_INHERITED "environment"), "mine");
	slurm_spank_exit(fake_spank(), 0, NULL);
	setenv(CE_INHERITED "environment", "the job's", 1);
	submit(S_CTX_LOCAL);
	CHECK_TEXT(getenv(CE_INHERITED "environment"), "the job's");
	slurm_spank_exit(fake_spank(), 0, NULL);
	unsetenv(CE_INHERITED "environment");
	setenv(CE_INHERITED "edf", "the job's", 1);
	submit(S_CTX_LOCAL);
	CHECK(getenv(CE_INHERITED "environment") == NULL);
	slurm_spank_exit(fake_spank(), 0, NULL);
	unsetenv(CE_INHERITED "edf");
	setenv(CE_INHERIT, "no", 1);
	submit(S_CTX_LOCAL);
	CHECK(getenv(CE_INHERITED "environment") == NULL);
	slurm_spank_exit(fake_spank(), 0, NULL);
	setenv("CE_ENVIRONMENT", "", 1);
	submit(S_CTX_LOCAL);
	CHECK_TEXT(getenv(CE_INHERITED "environment"), ""); /* which the planner refuses */
	slurm_spank_exit(fake_spank(), 0, NULL);
}

TEST("the options can be left out in plugstack.conf")
{
	setenv("PYXIS_CONTAINER_IMAGE", "/v.sqsh", 1);
	more_of_plugstack = "pyxis=off";
	submit(S_CTX_LOCAL);
	CHECK_INT(fake_job.option_count, 2);
	CHECK(getenv(CE_INHERITED "container_image") == NULL);
	slurm_spank_exit(fake_spank(), 0, NULL);
	more_of_plugstack = "pyxis=on";
	submit(S_CTX_LOCAL);
	CHECK_INT(fake_job.option_count, 18);
	slurm_spank_exit(fake_spank(), 0, NULL);
	more_of_plugstack = NULL;
}

static const char *list;

static void submit_two(void)
{
	submit(S_CTX_ALLOCATOR);
	CHECK_INT(fake_give_option("container-image", "x"), 0);
	CHECK_INT(fake_give_option(list, "/a"), 0);
	CHECK_INT(fake_give_option(list, "/b"), 0);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
}

TEST("mounts, variables and namespaces that the steps of a job would not get are refused")
{
	static const char *const lists[] = { "container-mounts", "container-env", "container-unshare" };

	install("echo plan; echo x");
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		list = lists[i];
		CHECK_INT(WEXITSTATUS(test_in_child(submit_two)), 125);
		CHECK_CONTAINS(test_printed, lists[i]);
		CHECK_CONTAINS(test_printed,
			       ": given twice, but Slurm hands only the last one to the "
			       "steps of a job: join them with a comma\n" CE_HELP_CONTAINER_OPTION "\n");
	}
}

static const char *given[2];

static void submit_components(void)
{
	BECOME("\0--cont\0x\0:");
	submit(S_CTX_LOCAL);
	for (size_t i = 0; i < 2; i++) {
		if (given[i] != NULL)
			CHECK_INT(fake_give_option("container-image", given[i]), 0);
		CHECK_INT(slurm_spank_init_post_opt(fake_spank(), 0, NULL), SLURM_SUCCESS);
	}
	slurm_spank_exit(fake_spank(), 0, NULL);
	_exit(0);
}

TEST("components of a heterogeneous step may have the same image, not two")
{
	install("echo plan; echo x");
	given[0] = given[1] = "a";
	CHECK_INT(test_in_child(submit_components), 0);
	given[1] = "b";
	CHECK_INT(WEXITSTATUS(test_in_child(submit_components)), 125);
	CHECK_CONTAINS(test_printed,
		       "'--container-image=a' for one component and '--container-image=b' for another");
	given[0] = NULL;
	CHECK_INT(WEXITSTATUS(test_in_child(submit_components)), 125);
}

static void submit_without(void)
{
	setenv(CE_INHERITED "container_image", "x", 1);
	submit(S_CTX_LOCAL);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
}

TEST("an image of the job that Slurm does not give to srun ends it")
{
	CHECK_INT(WEXITSTATUS(test_in_child(submit_without)), 125);
	CHECK_TEXT(test_printed,
		   "ce: error: --container-image=x: the job has this option, but Slurm does not pass it "
		   "to this command\n" CE_HELP_ENVIRONMENT_NOT_INHERITED "\n");
}

/* ---- beside pyxis ------------------------------------------------------------------------------ */

static void *load_pyxis(void)
{
	void *pyxis = dlopen(test_built("fake_pyxis.so"), RTLD_LAZY);

	CHECK(pyxis != NULL);
	return pyxis;
}

TEST("where pyxis is loaded, its options are its own, whatever plugstack.conf says")
{
	CHECK(!ce_pyxis_is_loaded());
	void *pyxis = load_pyxis();
	CHECK(ce_pyxis_is_loaded());
	more_of_plugstack = "pyxis=on";
	submit(S_CTX_LOCAL);
	CHECK_INT(fake_job.option_count, 2);
	slurm_spank_exit(fake_spank(), 0, NULL);
	more_of_plugstack = NULL;
	dlclose(pyxis);
	CHECK(!ce_pyxis_is_loaded());
}

static void submit_both(void)
{
	void *pyxis = load_pyxis();

	submit(S_CTX_LOCAL);
	CHECK_INT(fake_give_option("environment", "demo"), 0);
	slurm_spank_init_post_opt(fake_spank(), 0, NULL);
	slurm_spank_exit(fake_spank(), 0, NULL);
	dlclose(pyxis);
	_exit(0);
}

TEST("an environment alone works beside pyxis, also with variables that ask it for nothing")
{
	install("echo plan; echo x");
	setenv("PYXIS_CONTAINER_MOUNTS", "/a", 1);
	CHECK_INT(test_in_child(submit_both), 0);
	CHECK_TEXT(test_printed, "");
}

TEST("an environment and a container of pyxis are refused with one sentence")
{
	static const char *const names[] = { "PYXIS_CONTAINER_IMAGE", "PYXIS_CONTAINER_NAME",
					     "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image" };

	install("echo plan; echo x");
	for (size_t i = 0; i < 3; i++) {
		setenv(names[i], "x", 1);
		CHECK_INT(WEXITSTATUS(test_in_child(submit_both)), 125);
		CHECK_CONTAINS(test_printed,
			       "asks pyxis for a container, and --environment or CE_ENVIRONMENT asks "
			       "another plugin: a step has only one\n" CE_HELP_PYXIS_TOO "\n");
		CHECK_CONTAINS(test_printed, i < 2 ? names[i] : "--container-image");
		unsetenv(names[i]);
	}
}

TEST("an option that pyxis would ignore is refused beside an environment")
{
	static const char *const names[][2] = {
		{ "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_mounts", "--container-mounts" },
		{ "_SLURM_SPANK_OPTION_pyxis_no_container_mount_home", "--no-container-mount-home" },
	};

	install("echo plan; echo x");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		setenv(names[i][0], "", 1);
		CHECK_INT(WEXITSTATUS(test_in_child(submit_both)), 125);
		CHECK_CONTAINS(test_printed, names[i][1]);
		CHECK_CONTAINS(test_printed,
			       " is an option of pyxis here, which has no effect on the container of "
			       "--environment or CE_ENVIRONMENT\n" CE_HELP_PYXIS_TOO "\n");
		unsetenv(names[i][0]);
	}
}
