#define _GNU_SOURCE
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, SECONDS_PER_TEST = 60, MAX_PATHS = 64, PATIENCE_MS = 5000 };

static struct test *first, **last = &first;
static char directory[64];
static char paths[MAX_PATHS][512];
static size_t path_count;

void test_register(struct test *test)
{
	*last = test;
	last = &test->next;
}

/* ---- checks ------------------------------------------------------------------------------------ */

__attribute__((noreturn)) static void fail(const char *file, int line)
{
	fprintf(stderr, "    at %s:%d\n", file, line);
	fflush(stderr);
	/* _exit instead of exit: a leak after a failure is not worth reporting */
	_exit(1);
}

void test_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "    does not hold: %s (errno: %s)\n", what, strerror(errno));
	fail(file, line);
}

void test_check_int(const char *file, int line, const char *what, long long got, long long wanted)
{
	if (got == wanted)
		return;
	fprintf(stderr, "    %s is %lld, not %lld\n", what, got, wanted);
	fail(file, line);
}

void test_check_text(const char *file, int line, const char *what, const char *got,
		     const char *wanted)
{
	if (got == wanted || (got != NULL && wanted != NULL && strcmp(got, wanted) == 0))
		return;
	fprintf(stderr, "    %s is:\n\t%s\n    and not:\n\t%s\n", what, got != NULL ? got : "NULL",
		wanted != NULL ? wanted : "NULL");
	fail(file, line);
}

void test_check_contains(const char *file, int line, const char *what, const char *got,
			 const char *part)
{
	if (got != NULL && strstr(got, part) != NULL)
		return;
	fprintf(stderr, "    %s is:\n\t%s\n    without:\n\t%s\n", what, got != NULL ? got : "NULL",
		part);
	fail(file, line);
}

void test_needs_root(void)
{
	if (geteuid() != 0)
		_exit(SKIPPED);
}

/* ---- files ------------------------------------------------------------------------------------- */

const char *test_directory(void)
{
	CHECK(directory[0] != '\0');
	return directory;
}

const char *test_path(const char *parent, const char *name)
{
	CHECK(path_count < MAX_PATHS);
	char *path = paths[path_count++];
	CHECK(snprintf(path, sizeof paths[0], "%s/%s", parent, name) < (int)sizeof paths[0]);
	return path;
}

const char *test_file(const char *parent, const char *name, const char *content, mode_t mode)
{
	const char *path = test_path(parent, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_INT(write(fd, content, strlen(content)), strlen(content));
	CHECK_INT(fchmod(fd, mode), 0);
	close(fd);
	return path;
}

const char *test_copy(const char *source, const char *parent, const char *name)
{
	const char *path = test_path(parent, name);
	int from = open(source, O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	char block[65536];
	ssize_t n;

	CHECK(from >= 0 && to >= 0);
	while ((n = read(from, block, sizeof block)) > 0)
		CHECK_INT(write(to, block, (size_t)n), n);
	CHECK_INT(fchmod(to, 0755), 0);
	close(from);
	close(to);
	return path;
}

const char *test_built(const char *name)
{
	char program[512] = "";

	CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
	*strrchr(program, '/') = '\0';
	return test_path(program, name);
}

void test_build(const char *options)
{
	char line[256];

	snprintf(line, sizeof line, "${CC:-cc} -x c %s - </dev/null 2>&1", options);
	CHECK_INT(system(line), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st, (void)type, (void)walk;
	return remove(path);
}

int test_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	CHECK(dir != NULL);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count - 3; /* ".", ".." and the directory itself */
}

/* ---- processes --------------------------------------------------------------------------------- */

static char *read_stream(int fd)
{
	char *text = NULL;
	size_t size = 0;
	FILE *memory = open_memstream(&text, &size);
	char block[4096];
	ssize_t n;

	CHECK(memory != NULL);
	while ((n = read(fd, block, sizeof block)) > 0)
		fwrite(block, 1, (size_t)n, memory);
	fclose(memory);
	return text;
}

char *test_printed;

int test_in_child(test_fn *run)
{
	int ends[2], status;

	CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		run();
		_exit(0);
	}
	close(ends[1]);
	free(test_printed);
	test_printed = read_stream(ends[0]);
	close(ends[0]);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	return status;
}

pid_t test_idle_process(test_fn *prepare)
{
	int ready[2];
	char byte;

	CHECK_INT(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		if (prepare != NULL)
			prepare();
		/* a failed test does not end this process, which holds the pipe of the test's output */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		close(ready[1]);
		for (;;)
			pause();
	}
	close(ready[1]);
	CHECK_INT(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return pid;
}

int test_ends(int pidfd)
{
	struct pollfd entry = { .fd = pidfd, .events = POLLIN };

	return poll(&entry, 1, 5000) == 1;
}

/* ---- the run ----------------------------------------------------------------------------------- */

/* Return the time limit of a test; emulated processors need more. */
static unsigned seconds_per_test(void)
{
	const char *more = getenv("CE_TEST_SECONDS");

	return more != NULL ? (unsigned)strtoul(more, NULL, 10) : SECONDS_PER_TEST;
}

/* Return one child of this process, 0 if there is none. */
static pid_t a_child(void)
{
	char name[64], text[32] = "";

	snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
		text[0] = '\0';
	if (fd >= 0)
		close(fd);
	return (pid_t)strtol(text, NULL, 10);
}

/* Name a process that outlives its test, and end it. */
static void end_orphan(pid_t pid)
{
	char name[64], text[256] = "";

	snprintf(name, sizeof name, "/proc/%d/cmdline", (int)pid);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof text - 1) >= 0)
		fprintf(stderr, "    left a process: %s\n", text);
	if (fd >= 0)
		close(fd);
	kill(pid, SIGKILL);
}

/* Wait until no process of a test is left, whose orphans become this process's children. Those that are there
 * when the time is up are ended. Return how many that were. */
static int end_orphans(int patience_ms)
{
	int count = 0;

	for (int waited_ms = 0;; waited_ms += 10) {
		pid_t found = waitpid(-1, NULL, WNOHANG);
		if (found < 0)
			return count;
		if (found > 0)
			continue;
		if (waited_ms >= patience_ms && (found = a_child()) > 0) {
			end_orphan(found);
			count++;
		}
		poll(NULL, 0, 10);
	}
}

static int run_one(const struct test *test)
{
	int status;

	snprintf(directory, sizeof directory, "/tmp/ce-c-test-XXXXXX");
	if (mkdtemp(directory) == NULL || chmod(directory, 0755) < 0)
		return 1;
	pid_t pid = fork();
	if (pid == 0) {
		alarm(seconds_per_test());
		test->run();
		exit(0); /* exit, not _exit: it runs the leak check */
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	int passes = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	int left = end_orphans(passes ? PATIENCE_MS : 0);
	nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (WIFSIGNALED(status))
		fprintf(stderr, "    killed by signal %d (%s)\n", WTERMSIG(status),
			WTERMSIG(status) == SIGALRM ? "took too long" : "crashed");
	if (passes)
		return left > 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int in_ci(void)
{
	const char *ci = getenv("CI");

	return ci != NULL && (strcmp(ci, "true") == 0 || strcmp(ci, "1") == 0);
}

/* Return whether tests have this variable of the caller, NAME=VALUE. */
static int is_left(const char *entry)
{
	static const char *const names[] = { "PATH=", "HOME=", "CC=", "CI=", "CE_TEST_SECONDS=",
					     "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strncmp(entry, names[i], strlen(names[i])) == 0)
			return 1;
	}
	return 0;
}

/* Leave all tests the same environment: most variables of the caller decide what some program does. */
static void leave_out_settings(void)
{
	char **kept = environ;

	for (char **entry = environ; *entry != NULL; entry++) {
		if (is_left(*entry))
			*kept++ = *entry;
	}
	*kept = NULL;
	setenv("LANG", "C.UTF-8", 1);
}

/* Be started by a long name: fake_command_line puts words of other programs in its place. */
static void take_room(char **argv)
{
	static char name[128];

	if (strlen(argv[0]) >= sizeof name - 1)
		return;
	snprintf(name, sizeof name, "%-*s", (int)sizeof name - 1, argv[0]);
	argv[0] = name;
	execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0, skipped = 0;

	take_room(argv);

	signal(SIGPIPE, SIG_DFL);
	/* directories that tests make for other users are theirs to enter, whatever the caller's umask */
	umask(022);
	leave_out_settings();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* some tests count descriptors, so close those that were inherited by accident */
	close_range(3, ~0U, 0);
	for (const struct test *test = first; test != NULL; test = test->next) {
		if (argc > 1 && strstr(test->sentence, argv[1]) == NULL)
			continue;
		int rc = run_one(test);
		if (rc == SKIPPED && !in_ci()) {
			printf("skipped (needs root): %s\n", test->sentence);
			skipped++;
		} else if (rc != 0) {
			printf("FAILED: %s\n", test->sentence);
			failed++;
		} else {
			passed++;
		}
		fflush(stdout);
	}
	if (skipped > 0)
		printf("%d skipped, ", skipped);
	printf("%d passed, %d failed\n", passed, failed);
	return failed > 0;
}
