#define _GNU_SOURCE
#include "answers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "io.h"

/* ---- the names of a user --------------------------------------------------------------------------- */

enum { MOST_NAMES = 64 * 1024 };

/* Start ce-user with `output` as its standard output. Return its pid, or -1. */
static pid_t spawn(const char *prefix, int output)
{
	char program[PATH_MAX + 64];
	char *argv[] = { program, NULL }, *none[] = { NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	snprintf(program, sizeof program, "%s/libexec/container-engine/ce-user", prefix);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return -1;
	int failed = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) != 0 ||
		     posix_spawn(&pid, program, &actions, NULL, argv, none) != 0;
	posix_spawn_file_actions_destroy(&actions);
	return failed ? -1 : pid;
}

int ce_user_has_names(const char *prefix, const char *text, size_t size)
{
	int ends[2];
	size_t found_size = 0;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return 0;
	pid_t pid = spawn(prefix, ends[1]);
	close(ends[1]);
	CE_AUTO_FREE char *found = pid > 0 ? ce_read_all(ends[0], MOST_NAMES, &found_size) : NULL;
	/* before it is waited for: it may have more to say */
	close(ends[0]);
	int status = pid > 0 ? ce_await_child(pid) : -1;
	return found != NULL && status == 0 && found_size == size && memcmp(found, text, size) == 0;
}

#define MAGIC "container-engine answer 1\n"
#define BOOT "/proc/sys/kernel/random/boot_id"

enum { STATE = PATH_MAX + 160, BOOT_SIZE = 64, MAX_CONTENT = 64 * 1024 };

/* ---- the request ------------------------------------------------------------------------------- */

/* Print boot and name of this node. Return 0, or -1 on failure. */
static int print_node(FILE *stream)
{
	struct utsname host;
	CE_AUTO_FREE char *boot = ce_read_path(AT_FDCWD, BOOT, 0, BOOT_SIZE, NULL);

	if (boot == NULL || uname(&host) < 0)
		return -1;
	fprintf(stream, "%.*s %s", (int)strcspn(boot, "\n"), boot, host.nodename);
	return 0;
}

/* Print this process's user, group and other groups, in the kernel's order. Return 0, or -1 on failure. */
static int print_ids(FILE *stream)
{
	int count = getgroups(0, NULL);
	CE_AUTO_FREE gid_t *groups = count >= 0 ? calloc((size_t)count + 1, sizeof *groups) : NULL;

	if (groups == NULL || getgroups(count, groups) != count)
		return -1;
	fprintf(stream, "%u %u", (unsigned)geteuid(), (unsigned)getegid());
	for (int i = 0; i < count; i++)
		fprintf(stream, " %u", (unsigned)groups[i]);
	return 0;
}

char *ce_answer_request(const struct ce_query *request, size_t *size)
{
	char *whole = NULL;
	FILE *stream = open_memstream(&whole, size);
	int failed = 0;

	if (stream == NULL)
		return NULL;
	fprintf(stream, "%s%c%s%c", CE_VERSION, 0, request->prefix, 0);
	if (!request->is_everywhere)
		failed |= print_node(stream);
	fputc(0, stream);
	failed |= print_ids(stream);
	fputc(0, stream);
	fwrite(request->words, 1, request->size, stream);
	if (fclose(stream) == 0 && !failed)
		return whole;
	free(whole);
	return NULL;
}

/* ---- witnesses --------------------------------------------------------------------------------- */

/* Print what identifies a file, whatever host sees it. */
static int print_shared(const struct stat *found, char *now, size_t size)
{
	return snprintf(now, size, "%llu %o %lld %lld %lld", (unsigned long long)found->st_ino,
			(unsigned)found->st_mode, (long long)found->st_size, ce_in_ns(found->st_mtim),
			ce_in_ns(found->st_ctim));
}

/* Print how a file is mounted, and for "p" which one it is. Return -1 with errno. */
static int print_mounted(char kind, const char *path, const struct stat *found, char now[STATE])
{
	struct statvfs mounted;
	int length = 0;

	if (statvfs(path, &mounted) < 0)
		return -1;
	if (kind == 'p')
		length = snprintf(now, STATE, "%llu %llu ", (unsigned long long)found->st_dev,
				  (unsigned long long)found->st_ino);
	snprintf(now + length, STATE - (size_t)length, "%o %lu", (unsigned)(found->st_mode & S_IFMT),
		 mounted.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC));
	return 0;
}

/* Print the state of a path for one kind of question. Return -1 with errno. */
static int print_state(char kind, const char *path, char now[STATE])
{
	struct stat found;

	if (stat(path, &found) < 0)
		return -1;
	unsigned long long device = found.st_dev, inode = found.st_ino;
	switch (kind) {
	case 'r':
		return realpath(path, now) != NULL ? 0 : -1;
	case 'o':
		return snprintf(now, STATE, "%u %o", (unsigned)found.st_uid, (unsigned)found.st_mode);
	case 'd':
		return snprintf(now, STATE, "%llu %llu %o %llu %d %d", device, inode,
				(unsigned)found.st_mode, (unsigned long long)found.st_rdev,
				access(path, R_OK) == 0, access(path, W_OK) == 0);
	case 'f': {
		int length = snprintf(now, STATE, "%llu ", device);
		return print_shared(&found, now + length, STATE - (size_t)length);
	}
	case 's':
		return print_shared(&found, now, STATE);
	case 'i':
		return snprintf(now, STATE, "%llu %lld %lld", inode, (long long)found.st_size,
				ce_in_ns(found.st_mtim));
	default:
		return print_mounted(kind, path, &found, now);
	}
}

/* Print the state of a path that cannot be examined: the errno, and what identifies a symlink that leads
 * nowhere. */
static void print_absent(const char *path, int cause, char now[STATE])
{
	struct stat link;

	if (lstat(path, &link) < 0)
		snprintf(now, STATE, "errno %d", cause);
	else
		snprintf(now, STATE, "errno %d %llu %lld", cause, (unsigned long long)link.st_ino,
			 ce_in_ns(link.st_ctim));
}

static int has_content(const char *path, const char *state)
{
	size_t size = 0;
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, path, O_NOFOLLOW, MAX_CONTENT, &size);

	return text != NULL && state[0] == '=' && size == strlen(state + 1) &&
	       memcmp(text, state + 1, size) == 0;
}

/* Return whether a variable, NULL if it is unset, is in this state. */
static int is_in_state(const char *now, const char *state)
{
	if (now == NULL)
		return strcmp(state, "-") == 0;
	return strcmp(state, "+") == 0 || (state[0] == '=' && strcmp(state + 1, now) == 0);
}

static int is_before(const char *state)
{
	char *end;
	long long until = strtoll(state, &end, 10);

	return end != state && *end == '\0' && time(NULL) < until;
}

static int is_true(const char *question, const char *state, const struct ce_query *request)
{
	const char *about = question + (question[0] != '\0');
	char now[STATE];

	switch (question[0]) {
	case 'v':
		return is_in_state(request->variable(request->context, about), state);
	case 't':
		return is_before(state);
	case 'u':
		return ce_user_has_names(request->prefix, state, strlen(state));
	case 'c':
		return has_content(about, state);
	default:
		break;
	}
	if (question[0] == '\0' || strchr("fsipedor", question[0]) == NULL || about[0] != '/')
		return 0;
	if (print_state(question[0], about, now) < 0)
		print_absent(about, errno, now);
	return strcmp(now, state) == 0;
}

/* ---- the file ---------------------------------------------------------------------------------- */

/* Four bytes at a time, since a record of what was read from an image has up to a megabyte. */
uint32_t ce_crc(uint32_t before, const void *data, size_t size)
{
	static uint32_t table[4][256];
	const unsigned char *bytes = data;
	uint32_t crc = ~before;

	/* the last entry is 0 until the tables have been made */
	for (uint32_t i = 0; table[3][255] == 0 && i < 256; i++) {
		table[0][i] = i;
		for (int bit = 0; bit < 8; bit++)
			table[0][i] = (table[0][i] >> 1) ^ (0xedb88320 & (0 - (table[0][i] & 1)));
	}
	for (uint32_t i = 0; table[3][255] == 0 && i < 256; i++) {
		for (int k = 1; k < 4; k++)
			table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xff];
	}
	for (; size >= 4; size -= 4, bytes += 4)
		crc = table[3][(crc ^ bytes[0]) & 0xff] ^ table[2][((crc >> 8) ^ bytes[1]) & 0xff] ^
		      table[1][((crc >> 16) ^ bytes[2]) & 0xff] ^ table[0][(crc >> 24) ^ bytes[3]];
	for (size_t i = 0; i < size; i++)
		crc = table[0][(crc ^ bytes[i]) & 0xff] ^ (crc >> 8);
	return ~crc;
}

/* Begin to read the fields of an answer, after the name of the format and the checksum of what follows.
 * Return 0, or -1 if it begins otherwise, or if the checksum shows that the disk has changed it. */
static int open_fields(const char *text, size_t size, struct ce_fields *fields)
{
	size_t begin = strlen(MAGIC);
	char now[16];

	if (size < begin || memcmp(text, MAGIC, begin) != 0)
		return -1;
	*fields = (struct ce_fields){ text + begin, text + size, 0 };
	const char *written = ce_take(fields);
	snprintf(now, sizeof now, "%08x", ce_crc(0, fields->next, (size_t)(fields->end - fields->next)));
	return strcmp(written, now) == 0 && !fields->bad ? 0 : -1;
}

int ce_answer_check(const struct ce_query *request, const char *whole, size_t whole_size, size_t size,
		    struct ce_answer *answer)
{
	struct ce_fields fields;
	size_t asked_size, result_size;

	if (open_fields(answer->text, size, &fields) < 0)
		return -1;
	const char *asked = ce_take_bytes(&fields, &asked_size);
	if (fields.bad || asked_size != whole_size || memcmp(asked, whole, whole_size) != 0)
		return -1;
	struct ce_fields witnesses = ce_take_table(&fields, 2);
	const char *result = ce_take_bytes(&fields, &result_size);
	if (!ce_is_next(&fields, "end") || fields.next != fields.end)
		return -1;
	for (long long left = ce_take_number(&witnesses); left > 0; left--) {
		const char *question = ce_take(&witnesses), *state = ce_take(&witnesses);
		if (!is_true(question, state, request))
			return -1;
	}
	answer->result = (struct ce_fields){ result, result + result_size, 0 };
	return 0;
}

int ce_answer_find(int directory, const struct ce_query *request, struct ce_answer *answer)
{
	size_t whole_size = 0, size = 0;
	char name[64];
	CE_AUTO_FREE char *whole = ce_answer_request(request, &whole_size);

	*answer = (struct ce_answer){ 0 };
	for (int slot = 0; whole != NULL && slot < CE_ANSWER_SLOTS; slot++) {
		snprintf(name, sizeof name, "%08x.%zu.%d", ce_crc(0, whole, whole_size), whole_size, slot);
		answer->text = ce_read_own(directory, name, geteuid(), CE_ANSWER_LONGEST, &size);
		if (answer->text != NULL && ce_answer_check(request, whole, whole_size, size, answer) == 0)
			return 0;
		free(answer->text);
		*answer = (struct ce_answer){ 0 };
	}
	return -1;
}
