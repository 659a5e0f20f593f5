/*
 * A small test harness. A test's name is a sentence; each test runs in its own process, so that it may change
 * its identity, environment and descriptors, be killed or leak without harming the next one.
 */
#ifndef CE_TESTS_HARNESS_H
#define CE_TESTS_HARNESS_H

#include <stddef.h>
#include <sys/types.h>

typedef void test_fn(void);
struct test {
	const char *sentence;
	test_fn *run;
	struct test *next;
};

void test_register(struct test *test);

#define TEST_CONCAT_(a, b) a##b
#define TEST_CONCAT(a, b) TEST_CONCAT_(a, b)
#define TEST(words)                                                                                \
	static void TEST_CONCAT(test_, __LINE__)(void);                                            \
	static struct test TEST_CONCAT(entry_, __LINE__) = { words, TEST_CONCAT(test_, __LINE__),  \
							     NULL };                               \
	__attribute__((constructor)) static void TEST_CONCAT(register_, __LINE__)(void)            \
	{                                                                                          \
		test_register(&TEST_CONCAT(entry_, __LINE__));                                     \
	}                                                                                          \
	static void TEST_CONCAT(test_, __LINE__)(void)

/* Each of these ends the test if its condition does not hold. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			test_fail(__FILE__, __LINE__, #condition);                                 \
	} while (0)
#define CHECK_INT(got, wanted)                                                                     \
	test_check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(wanted))
#define CHECK_TEXT(got, wanted) test_check_text(__FILE__, __LINE__, #got, (got), (wanted))
#define CHECK_CONTAINS(got, part) test_check_contains(__FILE__, __LINE__, #got, (got), (part))

__attribute__((noreturn)) void test_fail(const char *file, int line, const char *what);
void test_check_int(const char *file, int line, const char *what, long long got, long long wanted);
void test_check_text(const char *file, int line, const char *what, const char *got,
		     const char *wanted);
void test_check_contains(const char *file, int line, const char *what, const char *got,
			 const char *part);

/* End a test that only root can run: skipped on a laptop, failed in CI. */
void test_needs_root(void);

/* Return a new directory that every user can read, removed when the test ends. The
 * caller must not free the path. */
const char *test_directory(void);

/* Create DIRECTORY/NAME with this content and mode; return its path, which the caller must not free. */
const char *test_file(const char *directory, const char *name, const char *content, mode_t mode);

/* Copy the file SOURCE to DIRECTORY/NAME, executable by all users; return the path of the copy. */
const char *test_copy(const char *source, const char *directory, const char *name);

/* Return the path of a file that was built beside this program; the caller must not free it. */
const char *test_built(const char *name);

/* Compile an empty source in the current directory with these options. */
void test_build(const char *options);

/* Return DIRECTORY/NAME; the caller must not free it. */
const char *test_path(const char *directory, const char *name);

/* Return how many descriptors this process has open. */
int test_open_fds(void);

/* Run `run` in a child, with its stderr captured in test_printed, until the next call. Return the wait
 * status. */
int test_in_child(test_fn *run);
extern char *test_printed;

/* Start a child that runs `prepare`, if it is not NULL, and then waits to be killed; return when it waits. */
pid_t test_idle_process(test_fn *prepare);

/* Wait for the end of a process that is not a child, by a pidfd. Return 1, or 0 after five seconds. */
int test_ends(int pidfd);

#endif
