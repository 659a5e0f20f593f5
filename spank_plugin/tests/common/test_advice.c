/* Questions of a task to ce-advise, and tasks that get no answer. The helper is the real one,
 * or a script in its place: this machine is the container. */
#define _GNU_SOURCE
#include "common/advice.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "generated/help.h"
#include "harness.h"

static char warnings[4096];

static const char *get(void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

static const struct ce_variables variables = { NULL, get, NULL };

static void note(void *context, const char *line, int is_of_mpi)
{
	size_t used = strlen(warnings);

	CHECK(context == warnings);
	snprintf(warnings + used, sizeof warnings - used, "%s%s;", is_of_mpi ? "mpi: " : "", line);
}

/* Make the current directory one with a `program` that does nothing, and return the directory of helpers. */
static const char *stage(void)
{
	CHECK_INT(mkdir(test_path(test_directory(), "libexec"), 0755), 0);
	CHECK_INT(mkdir(test_path(test_directory(), "libexec/container-engine"), 0755), 0);
	CHECK_INT(chdir(test_directory()), 0);
	test_file(".", "program", "#!/bin/sh\n", 0755);
	clearenv();
	CHECK_INT(setenv("PATH", "/usr/bin:/bin", 1), 0);
	warnings[0] = '\0';
	return test_path(test_directory(), "libexec/container-engine");
}

static struct ce_error err = CE_ERROR_INIT;

/* Check a command of at most two words. */
static int check(const char *first, const char *second, unsigned wants)
{
	char *argv[] = { strdup(first), second != NULL ? strdup(second) : NULL, NULL };
	CE_AUTO_FREE char *one = argv[0], *two = argv[1], *found = NULL;
	CE_AUTO_FD records = ce_memory_file("records", "", 0);
	struct ce_advisor advisor = CE_ADVISOR_INIT;
	struct ce_command command = { second != NULL ? 2 : 1, argv, environ, &variables,
				      records, wants, note, warnings };

	(void)two;
	ce_advisor_open(&advisor, test_directory());
	ce_error_clear(&err);
	int rc = ce_check_command(&advisor, &command, &found, &err);
	CHECK_INT(found == NULL, rc < 0);
	ce_advisor_close(&advisor);
	return rc;
}

/* Put a program in the place of ce-advise with this source. */
static void answer(const char *text)
{
	CE_AUTO_FREE char *source = NULL;
	CE_AUTO_FREE char *line = NULL;

	CHECK(asprintf(&source, "%s/answer.c", test_directory()) > 0);
	FILE *file = fopen(source, "w");
	CHECK(file != NULL);
	fprintf(file, "#include <unistd.h>\n#include <signal.h>\n%s\n", text);
	fclose(file);
	CHECK(asprintf(&line, "gcc -w -o libexec/container-engine/ce-advise %s", source) > 0);
	CHECK_INT(system(line), 0);
}

#define ANSWERS(text) answer("int main(void) { write(1, " #text ", sizeof(" #text ") - 1); return 0; }")

TEST("a command that lacks nothing is found without ce-advise")
{
	stage();
	CHECK_INT(setenv("SLURM_STEP_NUM_TASKS", "4", 1), 0);
	ANSWERS("e125never\0.\0");
	CHECK_INT(check("true", NULL, CE_WANTS_WARNINGS | CE_WANTS_RANKS), 0);
	CHECK_INT(check("true", "-x", CE_WANTS_WARNINGS | CE_WANTS_RANKS | CE_HAS_CHDIR), 0);
	CHECK_INT(check("sh", "true && ./program -n 2", CE_WANTS_WARNINGS | CE_WANTS_RANKS), 0);
	CHECK_INT(check("./program", NULL, CE_WANTS_WARNINGS | CE_WANTS_RANKS), 0);
	CHECK_INT(setenv("SLURM_NNODES", "2", 1), 0);
	CHECK_INT(check("env", "program", CE_WANTS_WARNINGS | CE_WANTS_RANKS), 0);
	CHECK_TEXT(warnings, "");
}

TEST("what ce-advise finds is said of the command")
{
	test_copy(test_built("ce-advise"), stage(), "ce-advise");
	CHECK_INT(check("ps-of-a-job", NULL, 0), -1);
	CHECK_INT(err.exit_code, 127);
	CHECK_TEXT(ce_error_text(&err), "ps-of-a-job: command not found in the container");
	CHECK_TEXT(err.below, CE_HELP_COMMAND_NOT_FOUND);
	CHECK_INT(check("/etc", NULL, 0), -1);
	CHECK_INT(err.exit_code, 126);
	CHECK_TEXT(ce_error_text(&err), "/etc: cannot be executed in the container: it is a directory");
	test_file(".", "orphan", "#!/nowhere/sh\n", 0755);
	CHECK_INT(check("./orphan", NULL, 0), -1);
	CHECK_INT(err.exit_code, 126);
	CHECK_CONTAINS(ce_error_text(&err), "it needs '/nowhere/sh', which does not exist");
	CHECK_INT(setenv("JAVA_HOME", "/nowhere/java", 1), 0);
	CHECK_INT(check("true", NULL, 0), 0);
	CHECK_TEXT(warnings, "");
	CHECK_INT(check("true", NULL, CE_WANTS_WARNINGS), 0);
	CHECK_CONTAINS(warnings, "JAVA_HOME='/nowhere/java' of your shell");
}

TEST("a program of the step that uses MPI, and one behind a shell, are asked about")
{
	test_copy(test_built("ce-advise"), stage(), "ce-advise");
	test_build("-shared -fPIC -Wl,-soname,libmpi.so.4711 -o libmpi.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -Wl,-rpath,/x -L. -lmpi -o ranks");
	CHECK_INT(setenv("SLURM_STEP_NUM_TASKS", "2", 1), 0);
	CHECK_INT(check("./ranks", NULL, CE_WANTS_WARNINGS | CE_WANTS_RANKS), 0);
	CHECK_CONTAINS(warnings, "the program uses MPI, and srun has no --mpi=");
	warnings[0] = '\0';
	test_file(".", "script", "#!/bin/sh\n./ranks\n", 0755);
	CHECK_INT(check("./script", NULL, CE_WANTS_WARNINGS | CE_WANTS_RANKS), 0);
	CHECK_CONTAINS(warnings, "./ranks uses MPI, and srun has no --mpi=");
	CHECK_INT(check("./ranks", NULL, CE_IS_REFUSED), -1);
	CHECK_INT(err.exit_code, 125);
	CHECK_CONTAINS(ce_error_text(&err), "the program uses MPI, and Slurm's PMIx refuses root");
	CHECK_TEXT(err.below, CE_HELP_PMIX_ROOT);
	warnings[0] = '\0';
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmpi -o other");
	CHECK_INT(check("./other", NULL, CE_WANTS_WARNINGS), 0);
	CHECK_CONTAINS(warnings, "mpi: the program ");
}

TEST("without ce-advise a task starts, and an error is the lookup's own")
{
	stage();
	CHECK_INT(setenv("JAVA_HOME", "/nowhere", 1), 0);
	CHECK_INT(check("true", NULL, CE_WANTS_WARNINGS), 0);
	CHECK_INT(check("no-such", NULL, 0), -1);
	CHECK_INT(err.exit_code, 127);
	CHECK_TEXT(ce_error_text(&err), "no-such: command not found in the container");
	CHECK_TEXT(err.below, CE_HELP_COMMAND_NOT_FOUND);
	CHECK_INT(check("", NULL, 0), -1);
	CHECK_TEXT(ce_error_text(&err), "'': command not found in the container");
	CHECK_INT(check("/etc", NULL, 0), -1);
	CHECK_INT(err.exit_code, 126);
	CHECK_TEXT(ce_error_text(&err), "/etc: cannot be executed in the container: Permission denied");
	test_file(".", "orphan", "#!/nowhere/sh\n", 0755);
	CHECK_INT(check("./orphan", NULL, 0), 0);
	CHECK_TEXT(warnings, "");
}

/* Check that a task starts which has reason to ask, and that nothing is said and no child is left. */
static void goes_on(void)
{
	CHECK_INT(setenv("JAVA_HOME", "/nowhere", 1), 0);
	CHECK_INT(check("true", NULL, CE_WANTS_WARNINGS), 0);
	CHECK_TEXT(warnings, "");
	CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
}

TEST("a task goes on when ce-advise hangs, with and without an answer")
{
	stage();
	answer("int main(void) { signal(SIGTERM, SIG_IGN); raise(SIGSTOP); for (;;) pause(); }");
	goes_on();
	answer("int main(void) { write(1, \".\", 2); for (;;) pause(); }");
	goes_on();
}

TEST("a task goes on when ce-advise is killed, fails, cannot be executed or has no end")
{
	const char *place = stage();

	answer("int main(void) { write(1, \"wone\", 5); raise(SIGKILL); }");
	goes_on();
	answer("int main(void) { return 1; }");
	goes_on();
	answer("int main(void) { for (;;) write(1, \"wone\", 5); }");
	goes_on();
	answer("int main(void) { write(2, \"a line\\n\", 7); write(1, \".\", 2); }");
	goes_on();
	test_file(place, "ce-advise", "nothing that can be executed", 0755);
	goes_on();
	test_file(place, "ce-advise", "", 0644);
	goes_on();
}

TEST("an answer with anything that an answer does not have is not believed")
{
	stage();
	ANSWERS("");
	goes_on();
	ANSWERS("wone\0");
	goes_on();
	ANSWERS("wone\0.");
	goes_on();
	ANSWERS("one\0.\0");
	goes_on();
	ANSWERS("wone\0\0.\0");
	goes_on();
	ANSWERS("e000none\0.\0");
	goes_on();
	ANSWERS("e1\0.\0");
	goes_on();
	ANSWERS(".\0wone\0.\0");
	goes_on();
	ANSWERS("wone\0mtwo\0.\0");
	CHECK_INT(check("true", NULL, CE_WANTS_WARNINGS), 0);
	CHECK_TEXT(warnings, "one;mpi: two;");
	ANSWERS("wone\0e125no\0bbelow\0.\0");
	CHECK_INT(check("true", NULL, CE_WANTS_WARNINGS), -1);
	CHECK_TEXT(ce_error_text(&err), "no");
	CHECK_TEXT(err.below, "below");
	CHECK_TEXT(warnings, "one;mpi: two;");
}

TEST("ce-advise needs no descriptor that the task has closed")
{
	test_copy(test_built("ce-advise"), stage(), "ce-advise");
	CHECK_INT(setenv("JAVA_HOME", "/nowhere/java", 1), 0);
	close(STDIN_FILENO);
	CHECK_INT(check("true", NULL, CE_WANTS_WARNINGS), 0);
	CHECK_CONTAINS(warnings, "JAVA_HOME='/nowhere/java'");
}
