#define _GNU_SOURCE
#include "step_answers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"

#define NAME_BEGINS "sha256-" /* of an image in a store */

enum { DIGITS = 12, MOST_DIGITS = 15, LONGEST_MS = 24 * 60 * 60 * 1000, OTHERS = 077 };

/* ---- a container to join ----------------------------------------------------------------------- */

int ce_join_wanted(const char *fact, struct ce_wanted *wanted)
{
	if (strspn(fact, "0123456789abcdef") != CE_JOB_CONTAINER_KEY || fact[CE_JOB_CONTAINER_KEY] != '/')
		return -1;
	memcpy(wanted->key, fact, CE_JOB_CONTAINER_KEY);
	wanted->key[CE_JOB_CONTAINER_KEY] = '\0';
	wanted->directory = fact + CE_JOB_CONTAINER_KEY;
	return 0;
}

int ce_join_read(struct ce_fields result, struct ce_join_answer *join)
{
	join->images = ce_take_table(&result, 1);
	join->block = ce_take_bytes(&result, &join->block_size);
	join->records = ce_take_bytes(&result, &join->records_size);
	join->workdir = ce_take(&result);
	ce_trace_read(&result, &join->trace);
	return !result.bad && result.next == result.end ? 0 : -1;
}

int ce_join_knows(const struct ce_join_answer *join, const char *image)
{
	struct ce_fields images = join->images;

	for (long long left = ce_take_number(&images); left > 0; left--) {
		if (strcmp(ce_take(&images), image) == 0)
			return 1;
	}
	return 0;
}

/* ---- its directory and its fields -------------------------------------------------------------- */

int ce_user_answers(const char *temporary, uid_t uid, const char *kind, bool is_made)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/ce-answers-%u", temporary, (unsigned)uid);

	if (length < 0 || (size_t)length >= sizeof path)
		return -1;
	if (is_made)
		(void)mkdir(path, 0700);
	CE_AUTO_FD answers = ce_open_own(AT_FDCWD, path, geteuid(), OTHERS);
	if (answers < 0)
		return -1;
	if (is_made)
		(void)mkdirat(answers, kind, 0700);
	return ce_open_own(answers, kind, geteuid(), OTHERS);
}

/* Take bytes that a step may change: those of `text`, which the fields are of. */
static char *take_own_bytes(struct ce_fields *fields, char *text, size_t *size)
{
	const char *bytes = ce_take_bytes(fields, size);

	return *size > 0 ? text + (bytes - text) : text;
}

int ce_start_read(const struct ce_answer *answer, struct ce_start_answer *start)
{
	struct ce_fields result = answer->result;

	start->specification = take_own_bytes(&result, answer->text, &start->specification_size);
	start->block = take_own_bytes(&result, answer->text, &start->block_size);
	start->records = take_own_bytes(&result, answer->text, &start->records_size);
	start->workdir = ce_take(&result);
	start->timeout_ms = ce_take_number(&result);
	start->uses = ce_take_table(&result, 2);
	start->ports = ce_take_table(&result, 1);
	start->startup = (struct ce_startup){ .words = ce_take_table(&result, 1), .log = -1 };
	start->startup.count = ce_take_number(&start->startup.words);
	ce_trace_read(&result, &start->trace);
	return !result.bad && result.next == result.end && start->specification_size > 0 &&
			       start->workdir[0] == '/' && start->timeout_ms > 0 &&
			       start->timeout_ms <= LONGEST_MS && start->startup.count <= CE_STARTUP_WORDS
		       ? 0
		       : -1;
}

/* ---- the port ---------------------------------------------------------------------------------- */

static int has_number(const char *text)
{
	return ce_is_number(text) && strlen(text) <= MOST_DIGITS;
}

/* Write this step's port as digits without a NUL. Return 0, or -1 if job or step has no number. */
static int make_port(const struct ce_step_env *env, char port[CE_PORT_DIGITS])
{
	const char *job = ce_step_variable(env, "SLURM_JOB_ID");
	const char *step = ce_step_variable(env, "SLURM_STEP_ID");
	char digits[32];

	if (!has_number(job) || !has_number(step))
		return -1;
	long long number = atoll(job) * CE_PORT_STEPS_APART + atoll(step);
	snprintf(digits, sizeof digits, "%lld", CE_PORT_FIRST + number % CE_PORT_COUNT);
	memcpy(port, digits, CE_PORT_DIGITS);
	return 0;
}

/* Write the port at this offset, where the text must have another one. Return 0, or -1 if it has none. */
static int write_port(const char port[CE_PORT_DIGITS], char *text, size_t size, long long offset)
{
	if (size < CE_PORT_DIGITS || offset < 0 || (size_t)offset > size - CE_PORT_DIGITS)
		return -1;
	if (strspn(text + offset, "0123456789") < CE_PORT_DIGITS)
		return -1;
	memcpy(text + offset, port, CE_PORT_DIGITS);
	return 0;
}

/* Write a port at a place, the letter of a text and an offset. Return 0, or -1 if it is not a place. */
static int enter_port(struct ce_start_answer *start, const char *place, const char port[CE_PORT_DIGITS])
{
	const char *digits = place + (*place != '\0');

	if (!ce_is_number(digits) || strlen(digits) > DIGITS)
		return -1;
	long long offset = atoll(digits);
	switch (*place) {
	case 's':
		return write_port(port, start->specification, start->specification_size, offset);
	case 'b':
		return write_port(port, start->block, start->block_size, offset);
	case 'r':
		return write_port(port, start->records, start->records_size, offset);
	default:
		return -1;
	}
}

int ce_start_enter_port(struct ce_start_answer *start, const struct ce_step_env *env)
{
	struct ce_fields ports = start->ports;
	char port[CE_PORT_DIGITS];
	long long left = ce_take_number(&ports);

	if (left > 0 && make_port(env, port) < 0)
		return -1;
	for (; left > 0; left--) {
		if (enter_port(start, ce_take(&ports), port) < 0)
			return -1;
	}
	return 0;
}

/* ---- images in use ----------------------------------------------------------------------------- */

/* Return whether an earlier step of this user has made this link for the same image. */
static int is_recorded(const char *link, const char *name)
{
	char found[PATH_MAX];
	struct stat made;
	int is_own = lstat(link, &made) == 0 && made.st_uid == geteuid();
	ssize_t size = is_own ? readlink(link, found, sizeof found) : -1;

	return size >= 0 && (size_t)size == strlen(name) && memcmp(found, name, (size_t)size) == 0;
}

int ce_start_note_images(const struct ce_start_answer *start, const struct ce_step_env *env)
{
	char link[PATH_MAX];
	const char *job = ce_step_variable(env, "SLURM_JOB_ID");
	const char *cluster = ce_step_variable(env, "SLURM_CLUSTER_NAME");
	const char *place = ce_step_variable(env, "SLURM_NODEID");
	struct ce_fields uses = start->uses;

	if (!ce_is_number(job) ||
	    (cluster != NULL && strchr(cluster, '/') != NULL))
		return 0;
	if (place != NULL && strcmp(place, "0") != 0)
		return 0;
	for (long long left = ce_take_number(&uses); left > 0; left--) {
		const char *directory = ce_take(&uses), *name = ce_take(&uses);
		if (strncmp(name, NAME_BEGINS, strlen(NAME_BEGINS)) != 0)
			return -1;
		int length = snprintf(link, sizeof link, "%s/%s-%.*s.%u@%s", directory, job, DIGITS,
				      name + strlen(NAME_BEGINS), (unsigned)geteuid(),
				      cluster != NULL ? cluster : "");
		if (length < 0 || (size_t)length >= sizeof link)
			return -1;
		if (symlink(name, link) < 0 &&
		    (errno == ENOENT || (errno == EEXIST && !is_recorded(link, name))))
			return -1;
	}
	return 0;
}
