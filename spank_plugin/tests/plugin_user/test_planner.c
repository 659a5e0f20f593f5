#define _GNU_SOURCE
#include "plugin_user/planner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generated/help.h"
#include "harness.h"
#include "plugin/carry.h"

static struct ce_config config;
static const char *const x[] = { "--", "x", NULL };

/* Run this shell script in the planner's place; return the result of ce_planner_run. */
static int plan_with(const char *script, const char *environment, struct ce_planned *plan,
		     struct ce_error *err)
{
	char *text = NULL;

	CHECK(asprintf(&text, "#!/bin/sh\n%s\n", script) > 0);
	config.plan = (char *)test_file(test_directory(), "planner", text, 0755);
	free(text);
	const char *const words[] = { "--", environment, NULL };
	return ce_planner_run(&config, "srun", words, plan, err);
}

TEST("the planner's output is the plan, byte by byte")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;

	CHECK_INT(plan_with("printf 'plan\\n{\"a\": \"\\303\\244\\n\"}'", "x", &plan, &err), 0);
	CHECK_TEXT(plan.text, "plan\n{\"a\": \"\303\244\n\"}");
	ce_planned_clear(&plan);
}

TEST("the planner learns its caller and the environment, even one that looks like an option")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;

	CHECK_INT(plan_with("echo plan; for word; do printf '[%s]' \"$word\"; done", "--help me", &plan,
			    &err),
		  0);
	CHECK_TEXT(plan.text, "plan\n[--for][srun][--][--help me]");
	ce_planned_clear(&plan);
}

TEST("the planner reports by a keyword that there is no container")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;

	CHECK_INT(plan_with("echo host", "x", &plan, &err), 0);
	CHECK_TEXT(plan.text, CE_WORD_HOST);
	ce_planned_clear(&plan);
}

TEST("a planner that succeeds without a complete keyword in its output is an error")
{
	static const char *const said[] = { "exit 0",	      "echo",		 "printf host",
					    "echo hosts",     "echo host; echo", "echo; echo host",
					    "echo plan",      "printf plan",	 "echo '{}'",
					    "printf 'plan{}'", "echo HOST" };

	for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
		struct ce_error err = CE_ERROR_INIT;
		struct ce_planned plan;
		CHECK_INT(plan_with(said[i], "x", &plan, &err), -1);
		CHECK(plan.text == NULL);
		CHECK_CONTAINS(ce_error_text(&err),
			       "/planner printed no plan, and not that the step needs none");
		CHECK_TEXT(ce_error_below(&err, ""), CE_HELP_PLANNER_MUTE);
		ce_error_clear(&err);
	}
}

TEST("a large plan arrives whole")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;

	CHECK_INT(plan_with("echo plan; head -c 16777211 /dev/zero | tr '\\0' x", "x", &plan, &err), 0);
	CHECK_INT(strlen(plan.text), 16777216);
	ce_planned_clear(&plan);
}

TEST("a plan that is too large is refused with the reason, not cut short")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;

	CHECK_INT(plan_with("exec head -c 40000000 /dev/zero", "x", &plan, &err), -1);
	CHECK(plan.text == NULL);
	CHECK_TEXT(ce_error_text(&err), "cannot read the plan: File too large");
	ce_error_clear(&err);
}

TEST("a planner that fails has printed the reason, and there is no second message")
{
	static const char *const failures[] = { "exit 1", "exit 2", "exit 125", "echo partial; exit 1" };

	for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
		struct ce_error err = CE_ERROR_INIT;
		struct ce_planned plan;
		CHECK_INT(plan_with(failures[i], "x", &plan, &err), -1);
		CHECK(plan.text == NULL);
		CHECK(err.message == NULL);
	}
}

TEST("a planner that was killed is an error")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;

	CHECK_INT(plan_with("echo partial; kill -9 $$", "x", &plan, &err), -1);
	CHECK(plan.text == NULL);
	CHECK_TEXT(ce_error_text(&err), "the planner was killed; nothing was started");
	ce_error_clear(&err);
}

TEST("a planner that is missing or cannot be executed is named")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;
	char *wanted = NULL;

	config.plan = (char *)test_path(test_directory(), "nothing");
	CHECK_INT(ce_planner_run(&config, "srun", x, &plan, &err), -1);
	CHECK(asprintf(&wanted, "cannot start %s: No such file or directory", config.plan) > 0);
	CHECK_TEXT(ce_error_text(&err), wanted);
	ce_error_clear(&err);
	free(wanted);
	config.plan = (char *)test_file(test_directory(), "data", "text", 0644);
	CHECK_INT(ce_planner_run(&config, "srun", x, &plan, &err), -1);
	CHECK_CONTAINS(ce_error_text(&err), "Permission denied");
	ce_error_clear(&err);
}

TEST("the planner gets signals although srun blocks them")
{
	struct ce_error err = CE_ERROR_INIT;
	sigset_t all;
	struct ce_planned plan;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGINT, SIG_IGN);
	CHECK_INT(plan_with("kill -INT $$; echo deaf", "x", &plan, &err), -1);
	CHECK_TEXT(ce_error_text(&err), "interrupted; nothing was started");
	ce_error_clear(&err);
}

TEST("planning leaves no descriptor and no child behind")
{
	struct ce_error err = CE_ERROR_INIT;
	struct ce_planned plan;
	int before = test_open_fds();

	CHECK_INT(plan_with("echo host", "x", &plan, &err), 0);
	ce_planned_clear(&plan);
	CHECK_INT(plan_with("exit 1", "x", &plan, &err), -1);
	CHECK_INT(test_open_fds(), before);
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_INT(errno, ECHILD);
}

/* ---- what precedes the plan --------------------------------------------------------------------- */

static void check_refused(const char *output)
{
	struct ce_planned planned = { .script_inside = 7 };

	CHECK_INT(ce_planned_read(output, &planned), -1);
	CHECK(planned.text == NULL);
	CHECK(planned.ephemeral_store == NULL);
	CHECK_INT(planned.script_inside, 0);
}

TEST("what the planner says beside the plan is read, and not carried")
{
	struct ce_planned planned;

	CHECK_INT(ce_planned_read("ephemeral_store=/s/a \"b\"\\c\nimage=sha256:1\nkept=7/k=\n"
				  "batch_script=inside\nplan\n{}\n",
				  &planned),
		  0);
	CHECK_TEXT(planned.image, "sha256:1");
	CHECK_TEXT(planned.job_container, "7/k=");
	CHECK_TEXT(planned.ephemeral_store, "/s/a \"b\"\\c");
	CHECK_INT(planned.script_inside, 1);
	CHECK_TEXT(planned.text, "plan\n{}\n");
	ce_planned_clear(&planned);
	CHECK_INT(ce_planned_read("plan\n{\"a\":\"ephemeral_store=/etc\"}\nephemeral_store=/etc\n", &planned),
		  0);
	CHECK(planned.ephemeral_store == NULL);
	CHECK_INT(planned.script_inside, 0);
	ce_planned_clear(&planned);
}

TEST("an output with a line that is not known, or cut short, is none")
{
	check_refused("");
	check_refused("batch_script=inside\n");
	check_refused("batch_script=inside");
	check_refused("batch_script=inside\nplan\n");
	check_refused("batch_script=host\nplan\n{}");
	check_refused("batch_script=inside2\nplan\n{}");
	check_refused("ephemeral_store=\nplan\n{}");
	check_refused("image=\nplan\n{}");
	check_refused("image=a\nimage=b\nplan\n{}");
	check_refused("kept=\nplan\n{}");
	check_refused("ephemeral_store=relative\nplan\n{}");
	check_refused("ephemeral_store=/a\nephemeral_store=/b\nplan\n{}");
	check_refused("\nplan\n{}");
	check_refused("ephemeral_store=/a\nhost\n{}");
}
