#define _GNU_SOURCE
#include "plugin/planner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/help.h"
#include "harness.h"
#include "plugin/carry.h"

static struct ce_config config;

/* Plans with this shell script in the planner's place; what ce_planner_run returns. */
static int plan_with(const char *script, const char *environment, char **plan, struct ce_error *err)
{
	char *text = NULL;

	CHECK(asprintf(&text, "#!/bin/sh\n%s\n", script) > 0);
	config.plan = (char *)test_file(test_directory(), "planner", text, 0755);
	free(text);
	return ce_planner_run(&config, "srun", environment, plan, err);
}

TEST("the planner's output is the plan, byte by byte")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan;

	CHECK_INT(plan_with("printf 'plan\\n{\"a\": \"\\303\\244\\n\"}'", "x", &plan, &err), 0);
	CHECK_TEXT(plan, "plan\n{\"a\": \"\303\244\n\"}");
	free(plan);
}

TEST("the planner learns its caller and the environment, even one that looks like an option")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan;

	CHECK_INT(plan_with("echo plan; for word; do printf '[%s]' \"$word\"; done", "--help me", &plan,
			    &err),
		  0);
	CHECK_TEXT(plan, "plan\n[--for][srun][--][--help me]");
	free(plan);
}

TEST("the planner says by a word that there is no container")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan;

	CHECK_INT(plan_with("echo host", "x", &plan, &err), 0);
	CHECK_TEXT(plan, CE_WORD_HOST);
	free(plan);
}

TEST("a planner that ends well and says nothing, half a word or another one is an error")
{
	static const char *const said[] = { "exit 0",	      "echo",		 "printf host",
					    "echo hosts",     "echo host; echo", "echo; echo host",
					    "echo plan",      "printf plan",	 "echo '{}'",
					    "printf 'plan{}'", "echo HOST" };

	for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
		struct ce_error err = CE_ERROR_INIT;
		char *plan;
		CHECK_INT(plan_with(said[i], "x", &plan, &err), -1);
		CHECK(plan == NULL);
		CHECK_CONTAINS(ce_error_text(&err),
			       "/planner printed neither a plan nor that there is no container");
		CHECK_TEXT(ce_error_below(&err, ""), CE_HELP_MUTE);
		ce_error_clear(&err);
	}
}

TEST("a large plan arrives whole")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan;

	CHECK_INT(plan_with("echo plan; head -c 16777211 /dev/zero | tr '\\0' x", "x", &plan, &err), 0);
	CHECK_INT(strlen(plan), 16777216);
	free(plan);
}

TEST("a plan that is too large is refused with the reason, not cut short")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan;

	CHECK_INT(plan_with("exec head -c 40000000 /dev/zero", "x", &plan, &err), -1);
	CHECK(plan == NULL);
	CHECK_TEXT(ce_error_text(&err), "cannot read the plan: File too large");
	ce_error_clear(&err);
}

TEST("when the planner fails it has said why: no second message")
{
	static const char *const failures[] = { "exit 1", "exit 2", "exit 125", "echo partial; exit 1" };

	for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
		struct ce_error err = CE_ERROR_INIT;
		char *plan;
		CHECK_INT(plan_with(failures[i], "x", &plan, &err), -1);
		CHECK(plan == NULL);
		CHECK(err.message == NULL);
	}
}

TEST("a planner that was killed is an error")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan;

	CHECK_INT(plan_with("echo partial; kill -9 $$", "x", &plan, &err), -1);
	CHECK(plan == NULL);
	CHECK_TEXT(ce_error_text(&err), "the planner was killed; nothing was started");
	ce_error_clear(&err);
}

TEST("a planner that is missing or cannot be executed is named")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan, *wanted = NULL;

	config.plan = (char *)test_path(test_directory(), "nothing");
	CHECK_INT(ce_planner_run(&config, "srun", "x", &plan, &err), -1);
	CHECK(asprintf(&wanted, "cannot start %s: No such file or directory", config.plan) > 0);
	CHECK_TEXT(ce_error_text(&err), wanted);
	ce_error_clear(&err);
	free(wanted);
	config.plan = (char *)test_file(test_directory(), "data", "text", 0644);
	CHECK_INT(ce_planner_run(&config, "srun", "x", &plan, &err), -1);
	CHECK_CONTAINS(ce_error_text(&err), "Permission denied");
	ce_error_clear(&err);
}

TEST("the planner hears signals although srun blocks them")
{
	struct ce_error err = CE_ERROR_INIT;
	sigset_t all;
	char *plan;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGINT, SIG_IGN);
	CHECK_INT(plan_with("kill -INT $$; echo deaf", "x", &plan, &err), -1);
	CHECK_TEXT(ce_error_text(&err), "the planner was killed; nothing was started");
	ce_error_clear(&err);
}

TEST("planning leaves no descriptor and no child behind")
{
	struct ce_error err = CE_ERROR_INIT;
	char *plan;
	int before = test_open_fds();

	CHECK_INT(plan_with("echo host", "x", &plan, &err), 0);
	free(plan);
	CHECK_INT(plan_with("exit 1", "x", &plan, &err), -1);
	CHECK_INT(test_open_fds(), before);
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_INT(errno, ECHILD);
}

/* ---- the image store of one step --------------------------------------------------------------- */

static void check_void_store(const char *plan, const char *expected)
{
	char *found = ce_plan_void_store(plan);

	if (expected == NULL)
		CHECK(found == NULL);
	else
		CHECK_TEXT(found, expected);
	free(found);
}

TEST("the store that was made for a step is found in its plan")
{
	check_void_store("{\"image\":{\"passing\":\"/s/.ce-void-x\",\"path\":\"/p\"}}", "/s/.ce-void-x");
	check_void_store("{\"image\":{\"passing\":\"\"}}", NULL);
	check_void_store("{\"image\":{\"passing\":\"imported for each step\"}}", NULL);
	check_void_store("{\"image\":{\"passing\":\"/with \\\"quotes\\\"\"}}", NULL);
	check_void_store("{\"image\":{\"passing\":\"/cut", NULL);
	check_void_store("{\"name\":\"\\\"passing\\\":\\\"/etc\"}", NULL);
	check_void_store("", NULL);
}
