/* The reader of the memo with which a step starts a container; tests/unit/node/test_start_memo.py tests
 * writer and reader together. */
#define _GNU_SOURCE
#include "node/start_memo.h"

#include <dirent.h>
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
#include <unistd.h>

#include "common/io.h"
#include "harness.h"
#include "memo_text.h"

#define MAGIC "container-engine start memo 3\n"

/* A memo on the heap, in memory of exactly its size and a NUL. */
struct text {
	char *bytes;
	size_t size;
};

/* The fields of a memo, of which each test changes one. A member with a size has several fields. */
struct fields {
	const char *version, *prefix, *boot, *ids, *variables, *plan, *aspects, *specification, *workdir,
		*timeout, *end, *names, *ports;
	size_t names_size, ports_size, variables_size, aspects_size, specification_size;
};
#define FIELD(name, text) .name = text, .name##_size = sizeof text

enum { MOST_GROUPS = 64 };

static char boot[64], ids[1024];

static struct fields usual(void)
{
	size_t size = 0;
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	CE_AUTO_FREE char *now = ce_read_all(fd, sizeof boot, &size);

	snprintf(boot, sizeof boot, "%.*s", (int)strcspn(now, "\n"), now);
	gid_t groups[MOST_GROUPS];
	int count = getgroups(MOST_GROUPS, groups);
	int length = snprintf(ids, sizeof ids, "%u %u", (unsigned)geteuid(), (unsigned)getegid());
	for (int i = 0; i < count; i++)
		length += snprintf(ids + length, sizeof ids - (size_t)length, " %u", (unsigned)groups[i]);
	close(fd);
	return (struct fields){
		"test", "/p", boot, ids, .plan = "{}", FIELD(specification, "9\0dir\0001\0/t\0"),
		.workdir = "/work", .timeout = "1000", .end = "end",
		FIELD(names, "0\0"), FIELD(variables, "3\0GONE\0-\0SLURM_NNODES\0=1\0EMPTY\0="),
		FIELD(aspects, "0"), FIELD(ports, "0"),
	};
}

/* Return the memo with these fields and their checksum. */
static struct text made_of(const struct fields *fields)
{
	static const char middle[] = "4\0A=1\0\0" "4\0B=1\0";
	static const char step[] = "1\0X\0/t\0{\0\"e\":1,\0/data\0" "1\0TOKEN";
	char *rest = NULL;
	size_t rest_size = 0, size = 0;
	FILE *stream = open_memstream(&rest, &rest_size);

	CHECK(stream != NULL);
	fprintf(stream, "%s%c%s%ch%c%s%c%s%c", fields->version, 0, fields->prefix, 0, 0, fields->boot, 0,
		fields->ids, 0);
	fwrite(fields->names, 1, fields->names_size, stream);
	fwrite(fields->variables, 1, fields->variables_size, stream);
	fprintf(stream, "%s%c", fields->plan, 0);
	fwrite(fields->aspects, 1, fields->aspects_size, stream);
	fwrite(fields->specification, 1, fields->specification_size, stream);
	fwrite(middle, 1, sizeof middle, stream);
	fprintf(stream, "%s%c%s%c0%c", fields->workdir, 0, fields->timeout, 0, 0);
	fwrite(fields->ports, 1, fields->ports_size, stream);
	fwrite(step, 1, sizeof step, stream);
	fprintf(stream, "%s%c", fields->end, 0);
	fclose(stream);
	char *whole = memo_text(MAGIC, rest, rest_size, &size);
	free(rest);
	return (struct text){ whole, size };
}

/* Return whether a memo in heap memory of its size can be read. */
static int reads(const char *bytes, size_t size)
{
	struct ce_start_memo memo;
	CE_AUTO_FREE char *copy = calloc(1, size + 1);

	CHECK(copy != NULL);
	memcpy(copy, bytes, size);
	int rc = ce_start_read(copy, size, &memo);
	return rc == 0;
}

/* Return whether a memo of these fields can be read and suits a start with the plan {} in which one variable
 * is set. */
static int suits(const struct fields *fields)
{
	static const char entries[] = "SLURM_NNODES=1\0EMPTY=\0SLURM_JOB_ID=7";
	const struct ce_step_env env = { entries, sizeof entries };
	const struct ce_start_wanted wanted = { "/p", "{}", "h", &env };
	struct text text = made_of(fields);
	struct ce_start_memo memo;

	int rc = ce_start_read(text.bytes, text.size, &memo) == 0 && ce_start_suits(&memo, &wanted);
	free(text.bytes);
	return rc;
}

TEST("the checksum of a memo is the one that Python makes")
{
	CHECK_INT(ce_crc(0, "123456789", 9), 0xcbf43926);
	CHECK_INT(ce_crc(ce_crc(0, "1234", 4), "56789", 5), 0xcbf43926);
	CHECK_INT(ce_crc(0, "", 0), 0);
}

TEST("a memo of a start is read as it was written")
{
	const struct fields fields = usual();
	struct text text = made_of(&fields);
	struct ce_start_memo memo;

	CHECK_INT(ce_start_read(text.bytes, text.size, &memo), 0);
	CHECK_TEXT(memo.prefix, "/p");
	CHECK_TEXT(memo.host, "h");
	CHECK_TEXT(memo.plan, "{}");
	CHECK_INT(memo.specification_size, 9);
	CHECK(memcmp(memo.specification, "dir\0001\0/t\0", 9) == 0);
	CHECK_INT(memo.block_size, 4);
	CHECK(memcmp(memo.records, "B=1\0", 4) == 0);
	CHECK_TEXT(memo.workdir, "/work");
	CHECK_INT(memo.timeout_ms, 1000);
	CHECK_TEXT(memo.step.traces, "/t");
	CHECK_TEXT(memo.step.trace_mounts, "/data");
	CHECK(suits(&fields));
	free(text.bytes);
}

TEST("a memo of a start is refused if it is cut short or has more")
{
	const struct fields fields = usual();
	struct text text = made_of(&fields);
	char *longer = calloc(1, text.size + 6);

	CHECK(longer != NULL);
	CHECK(reads(text.bytes, text.size));
	for (size_t size = 0; size < text.size; size++)
		CHECK(!reads(text.bytes, size));
	memcpy(longer, text.bytes, text.size);
	CHECK(!reads(longer, text.size + 1));
	memcpy(longer + text.size, "more", 5);
	CHECK(!reads(longer, text.size + 5));
	free(longer);
	free(text.bytes);
}

TEST("a memo of a start is refused if any bit of it has changed")
{
	const struct fields fields = usual();
	struct text text = made_of(&fields);

	for (size_t bit = 0; bit < text.size * 8; bit++) {
		text.bytes[bit / 8] ^= (char)(1 << bit % 8);
		CHECK(!reads(text.bytes, text.size));
		text.bytes[bit / 8] ^= (char)(1 << bit % 8);
	}
	CHECK(reads(text.bytes, text.size));
	free(text.bytes);
}

/* Return whether the usual fields suit after one of them has been changed. */
#define WITH(name, value) ({ struct fields with = usual(); with.name = value; suits(&with); })
#define WITH_TABLE(name, text) \
	({ struct fields with = usual(); with.name = text; with.name##_size = sizeof text; suits(&with); })

TEST("a memo of another start is not used, whatever its checksum says")
{
	CHECK(!WITH(version, "other"));
	CHECK(!WITH(version, ""));
	CHECK(!WITH(prefix, "/q"));
	CHECK(!WITH(boot, "0"));
	CHECK(!WITH(boot, ""));
	CHECK(!WITH(ids, "1 2"));
	CHECK(!WITH_TABLE(names, "1\0-"));
	CHECK(!WITH_TABLE(names, "1\0"));
	CHECK(!WITH(plan, "{ }"));
	CHECK(!WITH(workdir, ""));
	CHECK(!WITH(workdir, "work"));
	CHECK(!WITH(timeout, "0"));
	CHECK(!WITH(timeout, "-1"));
	CHECK(!WITH(timeout, ""));
	CHECK(!WITH(timeout, "86400001"));
	CHECK(!WITH(timeout, "1000000000000000000000"));
	CHECK(!WITH_TABLE(specification, "0\0"));
	CHECK(!WITH_TABLE(specification, "8\0dir\0001\0/t\0"));
	CHECK(!WITH_TABLE(specification, "10\0dir\0001\0/t\0"));
	CHECK(!WITH_TABLE(specification, "9999\0dir\0001\0/t\0"));
	CHECK(!WITH_TABLE(specification, "-1\0dir\0001\0/t\0"));
	CHECK(!WITH_TABLE(specification, "999999999999999999\0dir\0001\0/t\0"));
	CHECK(!WITH(end, "END"));
	CHECK(!WITH(end, ""));
	CHECK(WITH_TABLE(variables, "0"));
	CHECK(WITH_TABLE(variables, "1\0SLURM_JOB_ID\0=7"));
	CHECK(WITH_TABLE(variables, "2\0SLURM_JOB_ID\0+\0EMPTY\0+"));
	CHECK(!WITH_TABLE(variables, "1\0GONE\0+"));
	CHECK(!WITH_TABLE(variables, "1\0SLURM_JOB_ID\0+7"));
	CHECK(!WITH_TABLE(variables, "1\0SLURM_JOB_ID\0=8"));
	CHECK(!WITH_TABLE(variables, "1\0SLURM_JOB_ID\0-"));
	CHECK(!WITH_TABLE(variables, "1\0SLURM_JOB_ID\0007"));
	CHECK(!WITH_TABLE(variables, "1\0SLURM_JOB_ID\0"));
	CHECK(!WITH_TABLE(variables, "1\0SLURM_JOB\0="));
	CHECK(!WITH_TABLE(variables, "1\0EMPTY\0-"));
	CHECK(!WITH_TABLE(variables, "1\0GONE\0="));
	CHECK(!WITH_TABLE(variables, "3\0GONE\0-\0SLURM_NNODES\0=2\0EMPTY\0="));
	CHECK(!WITH_TABLE(variables, "4\0GONE\0-\0SLURM_NNODES\0=1\0EMPTY\0="));
	CHECK(!WITH_TABLE(variables, "2\0GONE\0-\0SLURM_NNODES\0=1\0EMPTY\0="));
	CHECK(!WITH_TABLE(variables, "-1\0GONE\0-"));
	CHECK(!WITH_TABLE(variables, "999999999999999999\0-"));
	CHECK(!WITH_TABLE(aspects, "1\0f/not/there"));
	CHECK(!WITH_TABLE(aspects, "1\0x/not/there\0errno 2"));
	CHECK(!WITH_TABLE(aspects, "1\0fnot/there\0errno 2"));
	CHECK(!WITH_TABLE(aspects, "1\0\0errno 2"));
	CHECK(!WITH_TABLE(aspects, "1\0f/not/there\0"));
	CHECK(!WITH_TABLE(aspects, "1\0f/not/there\0errno 13"));
	CHECK(!WITH_TABLE(aspects, "1\0f/\0errno 2"));
	CHECK(!WITH_TABLE(ports, "1"));
	CHECK(!WITH_TABLE(ports, "x"));
	CHECK(!WITH_TABLE(ports, "999999999999999999\0s1"));
	CHECK(WITH_TABLE(aspects, "1\0f/not/there\0errno 2"));
	CHECK(WITH_TABLE(aspects, "2\0e/not/there\0errno 2\0p/dev/null/x\0errno 20"));
}

static int is_current(const char *aspect, const char *signature)
{
	struct fields fields = usual();
	char table[512];
	int length = snprintf(table, sizeof table, "1%c%s%c%s", 0, aspect, 0, signature);

	fields.aspects = table;
	fields.aspects_size = (size_t)length + 1;
	return suits(&fields);
}

/* Enter the port of a step into texts of 20 letters and digits; return the three after each other. */
static const char *entered(const char *table, size_t size, const char *step)
{
	static char result[128];
	char texts[3][21] = { "MASTER_PORT=20016...", "MASTER_PORT=20016...", "12345678901234567890" };
	char variables[64];
	struct ce_start_memo memo = {
		.ports = { table, table + size, 0 },
		.specification = texts[0],
		.block = texts[1],
		.records = texts[2],
		.specification_size = 17,
		.block_size = 17,
		.records_size = 20,
	};
	int length = snprintf(variables, sizeof variables, "SLURM_JOB_ID=3%c%s", 0, step);
	const struct ce_step_env env = { variables, (size_t)length + 1 };
	int rc = ce_start_enter_port(&memo, &env);

	snprintf(result, sizeof result, "%d %s %s %s", rc, texts[0], texts[1], texts[2]);
	return result;
}
#define ENTERED(table, step) entered(table, sizeof table, step)
#define AS_BEFORE " MASTER_PORT=20016... MASTER_PORT=20016... 12345678901234567890"

TEST("the port of the step replaces that of the step before, and nothing else")
{
	CHECK_TEXT(ENTERED("0", "A=1"), "0" AS_BEFORE);
	CHECK_TEXT(ENTERED("2\0s12\0b12", "SLURM_STEP_ID=5"),
		   "0 MASTER_PORT=20053... MASTER_PORT=20053... 12345678901234567890");
	CHECK_TEXT(ENTERED("2\0r0\0r15", "SLURM_STEP_ID=9990"),
		   "0 MASTER_PORT=20016... MASTER_PORT=20016... 20038678901234520038");
	/* not a number of the step, not an offset, not in the text, not a port */
	CHECK_TEXT(ENTERED("1\0s12", "SLURM_STEP_ID="), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s12", "SLURM_STEP_ID=x"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s12", "SLURM_STEP_ID=1000000000000000"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s12", "A=1"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0x12", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s-1", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s13", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0r16", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0r999999999999", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0r9999999999999", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
	CHECK_TEXT(ENTERED("1\0s11", "SLURM_STEP_ID=5"), "-1" AS_BEFORE);
}

TEST("what a start looked at has a signature for each kind of aspect")
{
	const char *file = test_file(test_directory(), "f", "content", 0644);
	char aspect[512], signature[256];
	struct stat found;
	struct statvfs mounted;

	CHECK_INT(stat(file, &found), 0);
	CHECK_INT(statvfs(file, &mounted), 0);
	unsigned long flags = mounted.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC);
	snprintf(aspect, sizeof aspect, "e%s", file);
	snprintf(signature, sizeof signature, "100000 %lu", flags);
	CHECK(is_current(aspect, signature));
	aspect[0] = 'p';
	CHECK(!is_current(aspect, signature));
	snprintf(signature, sizeof signature, "%llu %llu 100000 %lu", (unsigned long long)found.st_dev,
		 (unsigned long long)found.st_ino, flags);
	CHECK(is_current(aspect, signature));
	aspect[0] = 'f';
	CHECK(!is_current(aspect, signature));
	snprintf(signature, sizeof signature, "%llu %llu 100644 7 %lld %lld",
		 (unsigned long long)found.st_dev, (unsigned long long)found.st_ino,
		 (long long)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec,
		 (long long)found.st_ctim.tv_sec * 1000000000 + found.st_ctim.tv_nsec);
	CHECK(is_current(aspect, signature));
	CHECK_INT(chmod(file, 0600), 0);
	CHECK(!is_current(aspect, signature));
	aspect[0] = 'o';
	snprintf(signature, sizeof signature, "%u 100600", (unsigned)geteuid());
	CHECK(is_current(aspect, signature));
	CHECK_INT(chmod(file, 0620), 0);
	CHECK(!is_current(aspect, signature));
}

TEST("a device has another signature if it is another one, or others may open it")
{
	const char *path = test_path(test_directory(), "device");
	char aspect[512], signature[256];
	struct stat found;

	test_needs_root();
	CHECK_INT(mknod(path, S_IFCHR | 0600, makedev(1, 3)), 0);
	CHECK_INT(stat(path, &found), 0);
	snprintf(aspect, sizeof aspect, "d%s", path);
	snprintf(signature, sizeof signature, "%llu %llu 20600 259 1 1", (unsigned long long)found.st_dev,
		 (unsigned long long)found.st_ino);
	CHECK(is_current(aspect, signature));
	CHECK_INT(chmod(path, 0606), 0);
	CHECK(!is_current(aspect, signature));
	CHECK_INT(unlink(path), 0);
	CHECK(is_current(aspect, "errno 2"));
	CHECK(!is_current(aspect, signature));
}

static void as_another(void)
{
	const char *path = test_path(test_directory(), "device");
	char aspect[512], signature[256];
	struct stat found;

	CHECK_INT(mknod(path, S_IFCHR | 0604, makedev(1, 3)), 0);
	CHECK_INT(stat(path, &found), 0);
	CHECK_INT(chmod(test_directory(), 0755), 0);
	CHECK_INT(setgroups(0, NULL), 0);
	CHECK_INT(setresgid(54321, 54321, 54321), 0);
	CHECK_INT(setresuid(54321, 54321, 54321), 0);
	snprintf(aspect, sizeof aspect, "d%s", path);
	snprintf(signature, sizeof signature, "%llu %llu 20604 259 1 0", (unsigned long long)found.st_dev,
		 (unsigned long long)found.st_ino);
	CHECK(is_current(aspect, signature));
	_exit(0);
}

TEST("the signature of a device says what this user may do with it")
{
	test_needs_root();
	CHECK_INT(test_in_child(as_another), 0);
}

TEST("a signature of the path of a file changes when the path leads to the file by another name")
{
	const char *file = test_file(test_directory(), "f", "content", 0644);
	char other[500], link[500], aspect[512];

	snprintf(other, sizeof other, "%s-2", file);
	snprintf(link, sizeof link, "%s-link", file);
	snprintf(aspect, sizeof aspect, "r%s", link);
	CHECK_INT(linkat(AT_FDCWD, file, AT_FDCWD, other, 0), 0);
	CHECK(is_current(aspect, "errno 2"));
	CHECK_INT(symlink(file, link), 0);
	CHECK(is_current(aspect, file));
	CHECK_INT(unlink(link), 0);
	CHECK_INT(symlink(other, link), 0);
	CHECK(!is_current(aspect, file));
	CHECK(is_current(aspect, other));
}

TEST("a symlink that leads nowhere is not the same as nothing")
{
	char link[500], aspect[512], signature[128];
	struct stat found;

	snprintf(link, sizeof link, "%s/link", test_directory());
	CHECK_INT(symlink("nowhere", link), 0);
	CHECK_INT(lstat(link, &found), 0);
	snprintf(signature, sizeof signature, "errno 2 %llu %lld", (unsigned long long)found.st_ino,
		 (long long)found.st_ctim.tv_sec * 1000000000 + found.st_ctim.tv_nsec);
	for (const char *kind = "fpe"; *kind != '\0'; kind++) {
		snprintf(aspect, sizeof aspect, "%c%s", *kind, link);
		CHECK(!is_current(aspect, "errno 2"));
		CHECK(is_current(aspect, signature));
	}
}

static void other_groups(void)
{
	const gid_t two[] = { 54321, 54322 };

	CHECK_INT(setgroups(2, two), 0);
	CHECK(WITH(ids, "0 0 54321 54322"));
	CHECK(!WITH(ids, "0 0"));
	CHECK(!WITH(ids, "0 0 54321"));
	CHECK(!WITH(ids, "0 0 54322 54321"));
	CHECK(!WITH(ids, "0 0 54321 543220"));
	CHECK(!WITH(ids, "0 0 54321 54322 0"));
	CHECK_INT(setgroups(0, NULL), 0);
	CHECK(WITH(ids, "0 0"));
	CHECK(!WITH(ids, "0 0 54321"));
	_exit(0);
}

TEST("a memo of a start is for a user in the same groups")
{
	test_needs_root();
	CHECK_INT(test_in_child(other_groups), 0);
}

static void flags_in_signatures(void)
{
	static const unsigned long flags[] = { MS_NOSUID, MS_NODEV, MS_NOEXEC };
	const char *place = test_directory();
	char aspect[512], signature[64];

	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	snprintf(aspect, sizeof aspect, "e%s", place);
	for (size_t i = 0; i < 3; i++) {
		CHECK_INT(mount("tmpfs", place, "tmpfs", flags[i], "mode=0755"), 0);
		/* ST_ and MS_ have the same bits */
		snprintf(signature, sizeof signature, "40000 %lu", flags[i]);
		CHECK(is_current(aspect, signature));
		CHECK(!is_current(aspect, "40000 0"));
	}
	_exit(0);
}

TEST("a place that is mounted with other flags has another signature")
{
	test_needs_root();
	CHECK_INT(test_in_child(flags_in_signatures), 0);
}

/* Record the use of an image in a step with these variables; return the number of links that there are
 * then. */
static int noted(const char *directory, const char *variables, size_t size)
{
	char uses[512];
	int length = snprintf(uses, sizeof uses, "1%c%s%csha256-0123456789abcdef.sqsh", 0, directory, 0);
	int links = 0;
	const struct ce_start_memo memo = { .uses = { uses, uses + length + 1, 0 } };
	const struct ce_step_env env = { variables, size };

	CHECK_INT(ce_start_note_images(&memo, &env), 0);
	DIR *stream = opendir(directory);
	if (stream == NULL)
		return -1;
	for (const struct dirent *entry; (entry = readdir(stream)) != NULL;)
		links += entry->d_name[0] != '.';
	closedir(stream);
	return links;
}
#define NOTED(directory, text) noted(directory, text, sizeof text)

TEST("the use of an image is noted for a job with a number, on its first node, in the store alone")
{
	const char *uses = test_path(test_directory(), "uses");

	CHECK_INT(mkdir(uses, 0755), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=../7"), 0);
	CHECK_INT(NOTED(uses, "A=7"), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_CLUSTER_NAME=/../x"), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_NODEID=1"), 0);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_CLUSTER_NAME=c\0SLURM_NODEID=0"), 1);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=7\0SLURM_CLUSTER_NAME=c"), 1);
	CHECK_INT(NOTED(uses, "SLURM_JOB_ID=8\0SLURM_CLUSTER_NAME=c"), 2);
}

TEST("the use of an image that is not in a store is not recorded here")
{
	static const char variables[] = "SLURM_JOB_ID=7";
	char uses[512];
	int length = snprintf(uses, sizeof uses, "1%c%s%cimage-of-ones-own.sqsh", 0, test_directory(), 0);
	const struct ce_start_memo memo = { .uses = { uses, uses + length + 1, 0 } };
	const struct ce_step_env env = { variables, sizeof variables };

	CHECK_INT(ce_start_note_images(&memo, &env), -1);
}

/* Return whether the directory of this user's memos is accepted. */
static int finds(const char *temporary)
{
	CE_AUTO_FD fd = ce_own_starts(temporary, geteuid());

	return fd >= 0;
}

TEST("memos of starts are in directories of the user's alone")
{
	char name[64];
	const char *temporary = test_directory();

	snprintf(name, sizeof name, "ce-memos-%u", (unsigned)geteuid());
	const char *memos = test_path(temporary, name), *starts = test_path(memos, "starts");
	CHECK(!finds(temporary));
	CHECK_INT(mkdir(memos, 0700), 0);
	CHECK(!finds(temporary));
	CHECK_INT(mkdir(starts, 0700), 0);
	CHECK(finds(temporary));
	CHECK_INT(chmod(starts, 0710), 0);
	CHECK(!finds(temporary));
	CHECK_INT(chmod(starts, 0700), 0);
	CHECK_INT(chmod(memos, 0701), 0);
	CHECK(!finds(temporary));
	CHECK_INT(chmod(memos, 0700), 0);
	CHECK_INT(rename(starts, test_path(memos, "aside")), 0);
	CHECK_INT(symlink("aside", starts), 0);
	CHECK(!finds(temporary));
	CHECK_INT(unlink(starts), 0);
	test_file(memos, "starts", "", 0700);
	CHECK(!finds(temporary));
	CHECK_INT(unlink(starts), 0);
	CHECK_INT(rename(test_path(memos, "aside"), starts), 0);
	CHECK(finds(temporary));
	CHECK_INT(rename(memos, test_path(temporary, "other")), 0);
	CHECK_INT(symlink("other", memos), 0);
	CHECK(!finds(temporary));
	CHECK_INT(unlink(memos), 0);
	CHECK_INT(rename(test_path(temporary, "other"), memos), 0);
	test_needs_root();
	CHECK_INT(chown(starts, 54321, 54321), 0);
	CHECK(!finds(temporary));
	CHECK_INT(chown(starts, geteuid(), getegid()), 0);
	CHECK_INT(chown(memos, 54321, 54321), 0);
	CHECK(!finds(temporary));
}
