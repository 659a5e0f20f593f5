/* The reader of recorded answers; tests/unit/base/test_answers.py tests writer and reader together. */
#define _GNU_SOURCE
#include "common/answers.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "answer_text.h"
#include "common/io.h"
#include "harness.h"

#define RESULT "4\0a\0b\0\0"

/* what follows the request in an answer without a witness, and with one */
static const char none[] = "0\0" RESULT "end", one[] = "1\0vSET\0=7\0" RESULT "end";

static const char *variable(const void *context, const char *name)
{
	(void)context;
	return strcmp(name, "SET") == 0 ? "7" : strcmp(name, "EMPTY") == 0 ? "" : NULL;
}

static const struct ce_query query = { "/p", 0, "{}\0x", 4, variable, NULL };

/* Return whether an answer of these bytes is right, in heap memory of exactly their size and a NUL. */
static int is_right(const char *bytes, size_t size, const struct ce_query *asked)
{
	CE_AUTO_FREE char *copy = calloc(1, size + 1);
	struct ce_answer answer = { .text = copy };

	CHECK(copy != NULL);
	memcpy(copy, bytes, size);
	if (answer_check(asked, size, &answer) < 0)
		return 0;
	CHECK_TEXT(ce_take(&answer.result), "a");
	CHECK_TEXT(ce_take(&answer.result), "b");
	return !answer.result.bad && answer.result.next == answer.result.end;
}

static int with_rest(const char *rest, size_t rest_size)
{
	size_t size = 0;
	CE_AUTO_FREE char *text = answer_text(&query, rest, rest_size, &size);

	return is_right(text, size, &query);
}
/* whether an answer with these witnesses is right; the literal's last NUL ends the last of them */
#define REST(text) with_rest(text, sizeof(text))
#define WITH(witnesses) REST(witnesses "\0" RESULT "end")

/* Return whether an answer with one witness is right. */
static int is_true(const char *question, const char *state)
{
	char rest[1024];
	int length = snprintf(rest, sizeof rest, "1%c%s%c%s%c4%ca%cb%c%cend", 0, question, 0, state, 0, 0,
			      0, 0, 0);

	return with_rest(rest, (size_t)length + 1);
}

TEST("the checksum of an answer is the one that Python makes")
{
	CHECK_INT(ce_crc(0, "123456789", 9), 0xcbf43926);
	CHECK_INT(ce_crc(ce_crc(0, "1234", 4), "56789", 5), 0xcbf43926);
	CHECK_INT(ce_crc(0, "", 0), 0);
}

TEST("an answer is refused if it is cut short, has more, or any bit of it has changed")
{
	size_t size = 0;
	char longer[4096] = "";
	CE_AUTO_FREE char *text = answer_text(&query, one, sizeof one, &size);

	CHECK(is_right(text, size, &query));
	for (size_t cut = 0; cut < size; cut++)
		CHECK(!is_right(text, cut, &query));
	for (size_t bit = 0; bit < size * 8; bit++) {
		text[bit / 8] ^= (char)(1 << bit % 8);
		CHECK(!is_right(text, size, &query));
		text[bit / 8] ^= (char)(1 << bit % 8);
	}
	CHECK(size + sizeof "more" <= sizeof longer);
	memcpy(longer, text, size);
	CHECK(!is_right(longer, size + 1, &query));
	memcpy(longer + size, "more", sizeof "more");
	CHECK(!is_right(longer, size + sizeof "more", &query));
}

TEST("an answer with another shape is refused, whatever its checksum says")
{
	CHECK(WITH("0"));
	CHECK(!WITH("-1"));
	CHECK(!WITH(""));
	CHECK(!WITH("x"));
	CHECK(!WITH("1"));
	CHECK(!WITH("999999999999999999\0vSET\0=7"));
	CHECK(!REST("0\0" "4\0a\0b\0\0END"));
	CHECK(!REST("0\0" "4\0a\0b\0\0"));
	CHECK(!REST("0\0" "4\0a\0b\0\0end\0more"));
	CHECK(!REST("0\0" "5\0a\0b\0\0end"));
	CHECK(!REST("0\0" "3\0a\0b\0\0end"));
	CHECK(!REST("0\0" "-1\0a\0b\0\0end"));
	CHECK(!REST("0\0" "999999999999999999\0a\0b\0\0end"));
}

TEST("an answer to another request, of another prefix, release, boot or host, is refused")
{
	size_t size = 0, whole_size = 0;
	CE_AUTO_FREE char *text = answer_text(&query, none, sizeof none, &size);
	struct ce_query other = query;
	struct utsname host;
	char *whole = ce_answer_request(&query, &whole_size);
	const char *boot = whole + sizeof "test\0/p";

	CHECK(is_right(text, size, &query));
	other.words = "{}\0y";
	CHECK(!is_right(text, size, &other));
	other.words = query.words;
	other.size = 3;
	CHECK(!is_right(text, size, &other));
	other.size = 4;
	other.prefix = "/q";
	CHECK(!is_right(text, size, &other));
	other.prefix = query.prefix;
	other.is_everywhere = 1;
	CHECK(!is_right(text, size, &other));
	CHECK(memcmp(whole, "test\0/p", sizeof "test\0/p") == 0);
	CHECK_INT(strcspn(boot, " "), 36);
	CHECK_INT(uname(&host), 0);
	CHECK_TEXT(boot + 37, host.nodename);
	free(whole);
	whole = ce_answer_request(&other, &whole_size);
	CHECK_TEXT(whole + sizeof "test\0/p", "");
	free(whole);
}

/* Return the ids in the header of a request. */
static const char *ids(void)
{
	size_t size = 0;
	struct ce_query everywhere = query;

	everywhere.is_everywhere = 1;
	const char *whole = ce_answer_request(&everywhere, &size);
	return whole + sizeof "test\0/p\0";
}

static void other_groups(void)
{
	const gid_t two[] = { 54321, 54322 };

	CHECK_INT(setgroups(2, two), 0);
	CHECK_TEXT(ids(), "0 0 54321 54322");
	CHECK_INT(setgroups(0, NULL), 0);
	CHECK_INT(setresgid(54321, 54321, 54321), 0);
	CHECK_INT(setresuid(54322, 54322, 54322), 0);
	CHECK_TEXT(ids(), "54322 54321");
	_exit(0);
}

TEST("an answer is for a user in the same groups")
{
	test_needs_root();
	CHECK_INT(test_in_child(other_groups), 0);
}

TEST("a variable is a witness by its value, by being set, or by being unset")
{
	CHECK(WITH("3\0vGONE\0-\0vSET\0=7\0vEMPTY\0="));
	CHECK(WITH("2\0vSET\0+\0vEMPTY\0+"));
	CHECK(!WITH("1\0vGONE\0+"));
	CHECK(!WITH("1\0vGONE\0="));
	CHECK(!WITH("1\0vSET\0+7"));
	CHECK(!WITH("1\0vSET\0=8"));
	CHECK(!WITH("1\0vSET\0-"));
	CHECK(!WITH("1\0vSET\0007"));
	CHECK(!WITH("1\0vSET\0"));
	CHECK(!WITH("1\0vSE\0="));
	CHECK(!WITH("1\0vEMPTY\0-"));
	CHECK(!WITH("2\0vGONE\0-\0vSET\0=8"));
	CHECK(!WITH("4\0vGONE\0-\0vSET\0=7\0vEMPTY\0="));
	CHECK(!WITH("2\0vGONE\0-\0vSET\0=7\0vEMPTY\0="));
}

TEST("an answer is right until a moment")
{
	char when[32];

	snprintf(when, sizeof when, "%lld", (long long)time(NULL) + 3600);
	CHECK(is_true("t", when));
	snprintf(when, sizeof when, "%lld", (long long)time(NULL));
	CHECK(!is_true("t", when));
	CHECK(!is_true("t", ""));
	CHECK(!is_true("t", "9999999999x"));
	CHECK(!is_true("t", "never"));
}

TEST("a question that nobody understands has no true witness")
{
	CHECK(is_true("f/not/there", "errno 2"));
	CHECK(is_true("e/not/there", "errno 2"));
	CHECK(is_true("p/dev/null/x", "errno 20"));
	CHECK(!is_true("x/not/there", "errno 2"));
	CHECK(!is_true("fnot/there", "errno 2"));
	CHECK(!is_true("f", "errno 2"));
	CHECK(!is_true("", "errno 2"));
	CHECK(!is_true("f/not/there", ""));
	CHECK(!is_true("f/not/there", "errno 13"));
	CHECK(!is_true("f/", "errno 2"));
	CHECK(!is_true("c/not/there", "errno 2"));
	CHECK(!is_true("u", "=\nme\n"));
}

TEST("a file has another state when its content, its place or its owner changes")
{
	const char *file = test_file(test_directory(), "f", "content", 0644);
	char question[512], shared[200], state[256];
	struct stat found;
	struct statvfs mounted;

	CHECK_INT(stat(file, &found), 0);
	CHECK_INT(statvfs(file, &mounted), 0);
	unsigned long flags = mounted.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC);
	snprintf(question, sizeof question, "e%s", file);
	snprintf(state, sizeof state, "100000 %lu", flags);
	CHECK(is_true(question, state));
	question[0] = 'p';
	CHECK(!is_true(question, state));
	snprintf(state, sizeof state, "%llu %llu 100000 %lu", (unsigned long long)found.st_dev,
		 (unsigned long long)found.st_ino, flags);
	CHECK(is_true(question, state));
	snprintf(shared, sizeof shared, "%llu 100644 7 %lld %lld", (unsigned long long)found.st_ino,
		 ce_in_ns(found.st_mtim), ce_in_ns(found.st_ctim));
	question[0] = 's';
	CHECK(is_true(question, shared));
	question[0] = 'f';
	CHECK(!is_true(question, shared));
	snprintf(state, sizeof state, "%llu %s", (unsigned long long)found.st_dev, shared);
	CHECK(is_true(question, state));
	CHECK_INT(chmod(file, 0600), 0);
	CHECK(!is_true(question, state));
	question[0] = 's';
	CHECK(!is_true(question, shared));
	question[0] = 'i';
	snprintf(state, sizeof state, "%llu 7 %lld", (unsigned long long)found.st_ino,
		 ce_in_ns(found.st_mtim));
	CHECK(is_true(question, state));
	question[0] = 'o';
	snprintf(state, sizeof state, "%u 100600", (unsigned)geteuid());
	CHECK(is_true(question, state));
	CHECK_INT(chmod(file, 0620), 0);
	CHECK(!is_true(question, state));
	question[0] = 'c';
	CHECK(is_true(question, "=content"));
	CHECK(!is_true(question, "content"));
	CHECK(!is_true(question, "=conten"));
	CHECK_INT(rename(file, test_path(test_directory(), "g")), 0);
	CHECK_INT(symlink("g", file), 0);
	CHECK(!is_true(question, "=content"));
}

TEST("a file that is overwritten in place, with its old time and size, has another state")
{
	const char *file = test_file(test_directory(), "f", "content", 0644);
	char question[512], state[256];
	struct stat found;

	CHECK(file != NULL && stat(file, &found) == 0);
	snprintf(question, sizeof question, "s%s", file);
	snprintf(state, sizeof state, "%llu 100644 7 %lld %lld", (unsigned long long)found.st_ino,
		 ce_in_ns(found.st_mtim), ce_in_ns(found.st_ctim));
	CHECK(is_true(question, state));
	const struct timespec times[] = { found.st_atim, found.st_mtim };
	CE_AUTO_FD fd = open(file, O_WRONLY | O_CLOEXEC);
	/* until the file system's clock has gone on */
	do {
		CHECK_INT(pwrite(fd, "changed", 7, 0), 7);
		CHECK_INT(futimens(fd, times), 0);
		struct stat now;
		CHECK_INT(fstat(fd, &now), 0);
		if (ce_in_ns(now.st_ctim) != ce_in_ns(found.st_ctim))
			break;
	} while (1);
	CHECK(!is_true(question, state));
}

TEST("a device has another state if it is another one, or others may open it")
{
	const char *path = test_path(test_directory(), "device");
	char question[512], state[256];
	struct stat found;

	test_needs_root();
	CHECK_INT(mknod(path, S_IFCHR | 0600, makedev(1, 3)), 0);
	CHECK(path != NULL && stat(path, &found) == 0);
	snprintf(question, sizeof question, "d%s", path);
	snprintf(state, sizeof state, "%llu %llu 20600 259 1 1", (unsigned long long)found.st_dev,
		 (unsigned long long)found.st_ino);
	CHECK(is_true(question, state));
	CHECK_INT(chmod(path, 0606), 0);
	CHECK(!is_true(question, state));
	CHECK_INT(unlink(path), 0);
	CHECK(is_true(question, "errno 2"));
	CHECK(!is_true(question, state));
}

static void as_another(void)
{
	const char *path = test_path(test_directory(), "device");
	char question[512], state[256];
	struct stat found;

	CHECK_INT(mknod(path, S_IFCHR | 0604, makedev(1, 3)), 0);
	CHECK_INT(stat(path, &found), 0);
	CHECK_INT(chmod(test_directory(), 0755), 0);
	CHECK_INT(setgroups(0, NULL), 0);
	CHECK_INT(setresgid(54321, 54321, 54321), 0);
	CHECK_INT(setresuid(54321, 54321, 54321), 0);
	snprintf(question, sizeof question, "d%s", path);
	snprintf(state, sizeof state, "%llu %llu 20604 259 1 0", (unsigned long long)found.st_dev,
		 (unsigned long long)found.st_ino);
	CHECK(is_true(question, state));
	_exit(0);
}

TEST("the state of a device says what this user may do with it")
{
	test_needs_root();
	CHECK_INT(test_in_child(as_another), 0);
}

TEST("where a path leads is another state when it leads to the file by another name")
{
	const char *file = test_file(test_directory(), "f", "content", 0644);
	char other[500], link[500], question[512];

	snprintf(other, sizeof other, "%s-2", file);
	snprintf(link, sizeof link, "%s-link", file);
	snprintf(question, sizeof question, "r%s", link);
	CHECK_INT(linkat(AT_FDCWD, file, AT_FDCWD, other, 0), 0);
	CHECK(is_true(question, "errno 2"));
	CHECK_INT(symlink(file, link), 0);
	CHECK(is_true(question, file));
	CHECK_INT(unlink(link), 0);
	CHECK_INT(symlink(other, link), 0);
	CHECK(!is_true(question, file));
	CHECK(is_true(question, other));
}

TEST("a symlink that leads nowhere is not the same as nothing")
{
	char link[500], question[512], state[128];
	struct stat found;

	snprintf(link, sizeof link, "%s/link", test_directory());
	CHECK_INT(symlink("nowhere", link), 0);
	CHECK_INT(lstat(link, &found), 0);
	snprintf(state, sizeof state, "errno 2 %llu %lld", (unsigned long long)found.st_ino,
		 ce_in_ns(found.st_ctim));
	for (const char *kind = "fspe"; *kind != '\0'; kind++) {
		snprintf(question, sizeof question, "%c%s", *kind, link);
		CHECK(!is_true(question, "errno 2"));
		CHECK(is_true(question, state));
	}
}

static void flags_in_states(void)
{
	static const unsigned long flags[] = { MS_NOSUID, MS_NODEV, MS_NOEXEC };
	const char *place = test_directory();
	char question[512], state[64];

	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	snprintf(question, sizeof question, "e%s", place);
	for (size_t i = 0; i < 3; i++) {
		CHECK_INT(mount("tmpfs", place, "tmpfs", flags[i], "mode=0755"), 0);
		/* ST_ and MS_ have the same bits */
		snprintf(state, sizeof state, "40000 %lu", flags[i]);
		CHECK(is_true(question, state));
		CHECK(!is_true(question, "40000 0"));
	}
	_exit(0);
}

TEST("a place that is mounted with other flags has another state")
{
	test_needs_root();
	CHECK_INT(test_in_child(flags_in_states), 0);
}

/* Write an answer whose only witness is the variable SET into a slot. */
static const char *write_slot(const char *place, int slot, const char *value)
{
	char rest[64], name[64];
	size_t size = 0, whole_size = 0;
	int length = snprintf(rest, sizeof rest, "1%cvSET%c=%s%c4%ca%cb%c%cend", 0, 0, value, 0, 0, 0, 0, 0);
	CE_AUTO_FREE char *text = answer_text(&query, rest, (size_t)length + 1, &size);
	CE_AUTO_FREE char *whole = ce_answer_request(&query, &whole_size);

	snprintf(name, sizeof name, "%08x.%zu.%d", ce_crc(0, whole, whole_size), whole_size, slot);
	const char *path = test_file(place, name, "", 0600);
	CE_AUTO_FD file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	CHECK_INT(ce_write_all(file, text, size), 0);
	return path;
}

static int finds(const char *place)
{
	struct ce_answer answer;
	CE_AUTO_FD directory = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = ce_answer_find(directory, &query, &answer);

	CHECK((rc == 0) == (answer.text != NULL));
	free(answer.text);
	return rc == 0;
}

TEST("of several answers to a request the one is taken whose witnesses are true")
{
	const char *place = test_directory();

	CHECK(!finds(place));
	write_slot(place, 0, "8");
	write_slot(place, 2, "9");
	CHECK(!finds(place));
	write_slot(place, CE_ANSWER_SLOTS, "7");
	CHECK(!finds(place));
	write_slot(place, CE_ANSWER_SLOTS - 1, "7");
	CHECK(finds(place));
}

TEST("an answer is only taken from a regular file that nobody else may read or write")
{
	const char *place = test_directory();
	const char *file = write_slot(place, 0, "7");

	CHECK(finds(place));
	CHECK_INT(chmod(file, 0620), 0);
	CHECK(!finds(place));
	CHECK_INT(chmod(file, 0604), 0);
	CHECK(!finds(place));
	CHECK_INT(chmod(file, 0600), 0);
	CHECK_INT(truncate(file, CE_ANSWER_LONGEST + 1), 0);
	CHECK(!finds(place));
	CHECK_INT(rename(write_slot(place, 0, "7"), test_path(place, "aside")), 0);
	CHECK_INT(symlink("aside", file), 0);
	CHECK(!finds(place));
	CHECK_INT(unlink(file), 0);
	CHECK_INT(mkfifo(file, 0600), 0);
	CHECK(!finds(place));
	CHECK_INT(unlink(file), 0);
	CHECK_INT(mkdir(file, 0700), 0);
	CHECK(!finds(place));
	CHECK_INT(rmdir(file), 0);
	write_slot(place, 0, "7");
	CHECK(finds(place));
	test_needs_root();
	CHECK_INT(chown(file, 54321, 54321), 0);
	CHECK(!finds(place));
}
