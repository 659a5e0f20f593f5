#define _GNU_SOURCE
#include "plugin/carry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

extern char **environ;

enum { PIECE = CE_CARRY_PIECE };

/* Return a text of this size without a pattern, so that a wrong order or length changes it. */
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

TEST("no piece of an outer srun's plan is left behind a shorter one")
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

TEST("only a keyword makes a text a plan, or a decision for no container")
{
	const char *plan = "";

	CHECK_INT(ce_carry_word(CE_WORD_HOST, &plan), CE_SAYS_HOST);
	CHECK(plan == NULL);
	CHECK_INT(ce_carry_word(CE_WORD_PLAN "{}", &plan), CE_SAYS_PLAN);
	CHECK_TEXT(plan, "{}");
	static const char *const others[] = { NULL,	  "",	     "host",	"host\n{}",
					      "host\n\n", " host\n", "hosts\n", "plan\n",
					      "plan{}",	  "{}",	     "Plan\n{}" };
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		CHECK_INT(ce_carry_word(others[i], &plan), CE_SAYS_NOTHING);
		CHECK(plan == NULL);
	}
}

TEST("what another srun carried is taken out before this one plans")
{
	struct ce_error err = CE_ERROR_INIT;

	clearenv();
	CHECK_INT(ce_variable(environ, CE_CARRY_COUNT) != NULL, 0);
	CHECK_INT(ce_carry_put(CE_WORD_PLAN "{}", 1, &err), 0);
	CHECK_INT(ce_variable(environ, CE_CARRY_COUNT) != NULL, 1);
	ce_carry_forget();
	CHECK_INT(ce_variable(environ, CE_CARRY_COUNT) != NULL, 0);
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

TEST("a plan with a missing, empty or overlong piece is refused")
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

TEST("a plan of more pieces than srun makes is refused, although all are there")
{
	char *environment[CE_CARRY_MAX_PARTS + 3] = { NULL };

	for (int i = 0; i <= CE_CARRY_MAX_PARTS; i++)
		CHECK(asprintf(&environment[i], CE_CARRY_PART "%d=a", i) > 0);
	char **last = &environment[CE_CARRY_MAX_PARTS + 1];
	CHECK(asprintf(last, CE_CARRY_COUNT "=%d", CE_CARRY_MAX_PARTS + 1) > 0);
	CHECK(ce_carry_get(environment) == NULL);
	for (size_t i = 0; environment[i] != NULL; i++)
		free(environment[i]);
}
