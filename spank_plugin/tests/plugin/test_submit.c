#define _GNU_SOURCE
#include "plugin/submit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/help.h"
#include "harness.h"

extern char **environ;

enum { PIECE = CE_CARRY_PIECE };

/* ---- carrying ---------------------------------------------------------------------------------- */

/* A text of this size without a pattern that a wrong order or length would keep. */
static char *make_text(size_t size)
{
	char *text = malloc(size + 1);
	unsigned state = 12345;

	CHECK(text != NULL);
	for (size_t i = 0; i < size; i++) {
		state = state * 1103515245u + 12345u;
		text[i] = (char)(1 + (state >> 16) % 255);
	}
	text[size] = '\0';
	return text;
}

static void carry(size_t size, const char *parts)
{
	struct ce_error err = CE_ERROR_INIT;
	char *text = make_text(size);

	clearenv();
	setenv("SLURM_CE_PLAN_OF_SOMEBODY", "x", 1);
	CHECK_INT(ce_carry_put(text, 1, &err), 0);
	CHECK_TEXT(getenv(CE_CARRY_COUNT), parts);
	for (char **entry = environ; *entry != NULL; entry++)
		CHECK(strlen(*entry) < (size_t)128 * 1024);
	char *got = ce_carry_get(environ);
	CHECK(got != NULL);
	CHECK_INT(strcmp(got, text), 0);
	free(got);
	free(text);
	clearenv();
}

TEST("a plan of any size is carried whole")
{
	carry(0, "0");
	carry(1, "1");
	carry(PIECE - 1, "1");
	carry(PIECE, "1");
	carry(PIECE + 1, "2");
	carry((size_t)100 * 1024, "2");
	carry((size_t)4 * PIECE, "4");
	carry((size_t)5 * 1024 * 1024 + 17, "81");
	carry((size_t)PIECE * CE_CARRY_MAX_PARTS, "256");
}

TEST("the plan of an outer srun does not shine through a shorter one")
{
	struct ce_error err = CE_ERROR_INIT;
	char *outer = make_text(3 * PIECE);

	clearenv();
	CHECK_INT(ce_carry_put(outer, 1, &err), 0);
	CHECK_INT(ce_carry_put("inner", 1, &err), 0);
	char *got = ce_carry_get(environ);
	CHECK_TEXT(got, "inner");
	free(got);
	free(outer);
	clearenv();
}

TEST("only its word makes a text a plan, or none on purpose")
{
	const char *plan = "";

	CHECK_INT(ce_carry_word(CE_WORD_HOST, &plan), CE_SAYS_HOST);
	CHECK(plan == NULL);
	CHECK_INT(ce_carry_word(CE_WORD_PLAN "{}", &plan), CE_SAYS_PLAN);
	CHECK_TEXT(plan, "{}");
	static const char *const others[] = { NULL,	"",	  "host",    "host\n{}", "host\n\n", " host\n",
					      "hosts\n", "plan\n", "plan{}", "{}",	    "Plan\n{}" };
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		CHECK_INT(ce_carry_word(others[i], &plan), CE_SAYS_NOTHING);
		CHECK(plan == NULL);
	}
}

TEST("what another srun carried is taken out before this one plans")
{
	struct ce_error err = CE_ERROR_INIT;

	clearenv();
	CHECK_INT(ce_carry_is_there(environ), 0);
	CHECK_INT(ce_carry_put(CE_WORD_PLAN "{}", 1, &err), 0);
	CHECK_INT(ce_carry_is_there(environ), 1);
	ce_carry_forget();
	CHECK_INT(ce_carry_is_there(environ), 0);
	CHECK(ce_carry_get(environ) == NULL);
	clearenv();
}

TEST("an environment without a plan has none")
{
	char other[] = "SLURM_CE_PLAN_0=text", similar[] = "SLURM_CE_PLAN_PARTSX=1";
	char *environment[] = { other, similar, NULL };

	CHECK(ce_carry_get(environment) == NULL);
	CHECK(ce_carry_get(NULL) == NULL);
}

TEST("a plan with a missing, empty or overlong piece is none")
{
	char count[] = CE_CARRY_COUNT "=3", zero[] = CE_CARRY_PART "0=a", two[] = CE_CARRY_PART "2=c";
	char empty[] = CE_CARRY_PART "1=";
	char *missing[] = { count, zero, two, NULL };
	char *with_empty[] = { count, zero, empty, two, NULL };
	char *text = make_text(PIECE + 1), *too_long = NULL;

	CHECK(ce_carry_get(missing) == NULL);
	CHECK(ce_carry_get(with_empty) == NULL);
	CHECK(asprintf(&too_long, CE_CARRY_PART "1=%s", text) > 0);
	char *with_long[] = { count, zero, too_long, two, NULL };
	CHECK(ce_carry_get(with_long) == NULL);
	free(too_long);
	free(text);
}

TEST("a count that is no number, negative or huge means no plan")
{
	static const char *const bad[] = { "",	  "-1",	     "257",		    "x",
					   "1x",  "1 ",	     "99999999999999999999", "0x1",
					   "1.0", "2147483648", "-9223372036854775808" };

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char count[64], piece[] = CE_CARRY_PART "0=a";
		char *environment[] = { piece, count, NULL };
		snprintf(count, sizeof count, CE_CARRY_COUNT "=%s", bad[i]);
		CHECK(ce_carry_get(environment) == NULL);
	}
}

/* ---- planning ---------------------------------------------------------------------------------- */

static struct ce_config config;

/* Plans with this shell script in the planner's place; what ce_submit_plan returns. */
static int plan_with(const char *script, const char *environment, char **plan, struct ce_error *err)
{
	char *text = NULL;

	CHECK(asprintf(&text, "#!/bin/sh\n%s\n", script) > 0);
	config.plan = (char *)test_file(test_directory(), "planner", text, 0755);
	free(text);
	return ce_submit_plan(&config, "srun", environment, plan, err);
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
	CHECK_INT(ce_submit_plan(&config, "srun", "x", &plan, &err), -1);
	CHECK(asprintf(&wanted, "cannot start %s: No such file or directory", config.plan) > 0);
	CHECK_TEXT(ce_error_text(&err), wanted);
	ce_error_clear(&err);
	free(wanted);
	config.plan = (char *)test_file(test_directory(), "data", "text", 0644);
	CHECK_INT(ce_submit_plan(&config, "srun", "x", &plan, &err), -1);
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

static void check_passing(const char *plan, const char *expected)
{
	char *found = ce_submit_passing(plan);

	if (expected == NULL)
		CHECK(found == NULL);
	else
		CHECK_TEXT(found, expected);
	free(found);
}

TEST("the store that was made for a step is found in its plan")
{
	check_passing("{\"image\":{\"passing\":\"/s/.ce-void-x\",\"path\":\"/p\"}}", "/s/.ce-void-x");
	check_passing("{\"image\":{\"passing\":\"\"}}", NULL);
	check_passing("{\"image\":{\"passing\":\"imported for each step\"}}", NULL);
	check_passing("{\"image\":{\"passing\":\"/with \\\"quotes\\\"\"}}", NULL);
	check_passing("{\"image\":{\"passing\":\"/cut", NULL);
	check_passing("{\"name\":\"\\\"passing\\\":\\\"/etc\"}", NULL);
	check_passing("", NULL);
}
