#define _GNU_SOURCE
#include "start_memo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/io.h"
#include "step_port.h"
#include "common/user_names.h"

#define MAGIC "container-engine start memo 3\n"
#define NAME_BEGINS "sha256-" /* of an image in a store */
#define BOOT "/proc/sys/kernel/random/boot_id"

enum { SIGNATURE = PATH_MAX + 160, BOOT_SIZE = 64, DIGITS = 12, LONGEST_MS = 24 * 60 * 60 * 1000 };
enum { OTHERS = 077 };

const char *const ce_start_variables[CE_START_VARIABLES] = { "SLURM_STEP_NUM_NODES", "SLURM_NNODES",
							     "HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP" };

/* ---- its name and directory -------------------------------------------------------------------- */

/* Continue the CRC with a variable as a memo has it: "=" and the value, or "-". */
static uint32_t crc_of_variable(uint32_t crc, const char *value)
{
	if (value == NULL)
		return ce_crc(crc, "-", 2);
	return ce_crc(ce_crc(crc, "=", 1), value, strlen(value) + 1);
}

void ce_start_name(const struct ce_start_wanted *wanted, char name[CE_START_NAME])
{
	uint32_t crc = ce_crc(0, wanted->prefix, strlen(wanted->prefix) + 1);

	for (int i = 0; i < CE_START_VARIABLES; i++)
		crc = crc_of_variable(crc, ce_step_variable(wanted->env, ce_start_variables[i]));
	crc = ce_crc(crc, wanted->plan, strlen(wanted->plan));
	snprintf(name, CE_START_NAME, "%08x.%zu", crc, strlen(wanted->plan));
}

int ce_own_starts(const char *temporary, uid_t uid)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/ce-memos-%u", temporary, (unsigned)uid);

	if (length < 0 || (size_t)length >= sizeof path)
		return -1;
	CE_AUTO_FD memos = ce_open_own(AT_FDCWD, path, uid, OTHERS);
	return memos >= 0 ? ce_open_own(memos, "starts", uid, OTHERS) : -1;
}

/* ---- its fields -------------------------------------------------------------------------------- */

/* Take bytes that a step may change: those of `text`, which the fields are of. */
static char *take_own_bytes(struct ce_fields *fields, char *text, size_t *size)
{
	const char *bytes = ce_take_bytes(fields, size);

	return *size > 0 ? text + (bytes - text) : text;
}

int ce_start_read(char *text, size_t size, struct ce_start_memo *memo)
{
	struct ce_fields fields;

	if (ce_open_fields(text, size, MAGIC, &fields) < 0 || !ce_is_next(&fields, CE_VERSION))
		return -1;
	memo->prefix = ce_take(&fields);
	memo->host = ce_take(&fields);
	memo->boot = ce_take(&fields);
	memo->ids = ce_take(&fields);
	memo->names = ce_take_bytes(&fields, &memo->names_size);
	memo->variables = ce_take_table(&fields, 2);
	memo->plan = ce_take(&fields);
	memo->aspects = ce_take_table(&fields, 2);
	memo->specification = take_own_bytes(&fields, text, &memo->specification_size);
	memo->block = take_own_bytes(&fields, text, &memo->block_size);
	memo->records = take_own_bytes(&fields, text, &memo->records_size);
	memo->workdir = ce_take(&fields);
	memo->timeout_ms = ce_take_number(&fields);
	memo->uses = ce_take_table(&fields, 2);
	memo->ports = ce_take_table(&fields, 1);
	ce_step_read(&fields, &memo->step);
	return ce_is_next(&fields, "end") && fields.next == fields.end ? 0 : -1;
}

/* ---- what it was made from --------------------------------------------------------------------- */

/* Print the signature of a path for one kind of aspect. Return -1 with errno. */
static int print_signature(char kind, const char *path, char now[SIGNATURE])
{
	struct stat found;
	struct statvfs mounted;

	if (stat(path, &found) < 0)
		return -1;
	if (kind == 'r')
		return realpath(path, now) != NULL ? 0 : -1;
	unsigned long long device = found.st_dev, inode = found.st_ino;
	if (kind == 'o') {
		snprintf(now, SIGNATURE, "%u %o", (unsigned)found.st_uid, (unsigned)found.st_mode);
		return 0;
	}
	if (kind == 'd') {
		snprintf(now, SIGNATURE, "%llu %llu %o %llu %d %d", device, inode, (unsigned)found.st_mode,
			 (unsigned long long)found.st_rdev, access(path, R_OK) == 0, access(path, W_OK) == 0);
		return 0;
	}
	if (kind == 'f') {
		snprintf(now, SIGNATURE, "%llu %llu %o %lld %lld %lld", device, inode,
			 (unsigned)found.st_mode, (long long)found.st_size, ce_in_ns(found.st_mtim),
			 ce_in_ns(found.st_ctim));
		return 0;
	}
	if (statvfs(path, &mounted) < 0)
		return -1;
	unsigned long flags = mounted.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC);
	if (kind == 'p')
		snprintf(now, SIGNATURE, "%llu %llu %o %lu", device, inode,
			 (unsigned)(found.st_mode & S_IFMT), flags);
	else
		snprintf(now, SIGNATURE, "%o %lu", (unsigned)(found.st_mode & S_IFMT), flags);
	return 0;
}

/* Print the signature of a path that stat cannot examine: the errno, and what identifies a symlink that leads
 * nowhere. */
static void print_absent(const char *path, int cause, char now[SIGNATURE])
{
	struct stat link;

	if (lstat(path, &link) < 0)
		snprintf(now, SIGNATURE, "errno %d", cause);
	else
		snprintf(now, SIGNATURE, "errno %d %llu %lld", cause, (unsigned long long)link.st_ino,
			 ce_in_ns(link.st_ctim));
}

/* Return whether a path still has the signature that the launcher has found. An aspect is one letter for its
 * kind, and the path. */
static int is_unchanged(const char *aspect, const char *signature)
{
	char now[SIGNATURE];

	if (aspect[0] == '\0' || strchr("fpedor", aspect[0]) == NULL || aspect[1] != '/')
		return 0;
	if (print_signature(aspect[0], aspect + 1, now) < 0)
		print_absent(aspect + 1, errno, now);
	return strcmp(now, signature) == 0;
}

static int are_aspects_unchanged(struct ce_fields aspects)
{
	for (long long left = ce_take_number(&aspects); left > 0; left--) {
		const char *aspect = ce_take(&aspects), *signature = ce_take(&aspects);
		if (!is_unchanged(aspect, signature))
			return 0;
	}
	return 1;
}

/* Return whether a variable, NULL if it is unset, is in the state that a memo has. */
static int is_in_state(const char *now, const char *state)
{
	if (now == NULL)
		return strcmp(state, "-") == 0;
	return strcmp(state, "+") == 0 || (state[0] == '=' && strcmp(state + 1, now) == 0);
}

static int are_variables_unchanged(struct ce_fields variables, const struct ce_step_env *env)
{
	for (long long left = ce_take_number(&variables); left > 0; left--) {
		const char *now = ce_step_variable(env, ce_take(&variables)), *state = ce_take(&variables);
		if (!is_in_state(now, state))
			return 0;
	}
	return 1;
}

static int is_of_this_boot(const char *boot)
{
	size_t size = 0;
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, BOOT, 0, BOOT_SIZE, &size);

	return text != NULL && size > 1 && strlen(boot) == size - 1 && memcmp(text, boot, size - 1) == 0;
}

/* Return whether a list begins with this number; if so, move past it and a space. */
static int take_id(const char **list, unsigned id)
{
	char wanted[16];
	size_t length = (size_t)snprintf(wanted, sizeof wanted, "%u", id);

	if (strncmp(*list, wanted, length) != 0 || ((*list)[length] != ' ' && (*list)[length] != '\0'))
		return 0;
	*list += length + ((*list)[length] == ' ');
	return 1;
}

/* Return whether the ids are this process's user, group and other groups, in the kernel's order. */
static int are_own_ids(const char *ids)
{
	int count = getgroups(0, NULL);
	CE_AUTO_FREE gid_t *groups = count >= 0 ? calloc((size_t)count + 1, sizeof *groups) : NULL;

	if (groups == NULL || getgroups(count, groups) != count || !take_id(&ids, geteuid()) ||
	    !take_id(&ids, getegid()))
		return 0;
	for (int i = 0; i < count; i++) {
		if (!take_id(&ids, groups[i]))
			return 0;
	}
	return *ids == '\0';
}

/* Ask who the user is unless the aspects have shown that. This takes longest, so it comes last. */
static int are_names_unchanged(const struct ce_start_memo *memo)
{
	return memo->names_size == 0 || ce_user_has_names(memo->prefix, memo->names, memo->names_size);
}

int ce_start_suits(const struct ce_start_memo *memo, const struct ce_start_wanted *wanted)
{
	return strcmp(memo->prefix, wanted->prefix) == 0 && strcmp(memo->host, wanted->host) == 0 &&
	       are_own_ids(memo->ids) && strcmp(memo->plan, wanted->plan) == 0 &&
	       memo->specification_size > 0 && memo->workdir[0] == '/' && memo->timeout_ms > 0 &&
	       memo->timeout_ms <= LONGEST_MS && is_of_this_boot(memo->boot) &&
	       are_variables_unchanged(memo->variables, wanted->env) &&
	       ce_step_suits(&memo->step, wanted->env) && are_aspects_unchanged(memo->aspects) &&
	       are_names_unchanged(memo);
}

/* ---- the port ---------------------------------------------------------------------------------- */

/* Write a port at a place, the letter of a text and an offset. Return 0, or -1 if it is not a place. */
static int enter_port(struct ce_start_memo *memo, const char *place, const char port[CE_PORT_DIGITS])
{
	const char *offset = place + (*place != '\0');

	if (!ce_is_number(offset) || strlen(offset) > DIGITS)
		return -1;
	switch (*place) {
	case 's':
		return ce_step_port_enter(port, memo->specification, memo->specification_size, atoll(offset));
	case 'b':
		return ce_step_port_enter(port, memo->block, memo->block_size, atoll(offset));
	case 'r':
		return ce_step_port_enter(port, memo->records, memo->records_size, atoll(offset));
	default:
		return -1;
	}
}

int ce_start_enter_port(struct ce_start_memo *memo, const struct ce_step_env *env)
{
	struct ce_fields ports = memo->ports;
	char port[CE_PORT_DIGITS];
	long long left = ce_take_number(&ports);

	if (left > 0 && ce_step_port(env, port) < 0)
		return -1;
	for (; left > 0; left--) {
		if (enter_port(memo, ce_take(&ports), port) < 0)
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

int ce_start_note_images(const struct ce_start_memo *memo, const struct ce_step_env *env)
{
	char link[PATH_MAX];
	const char *job = ce_step_variable(env, "SLURM_JOB_ID");
	const char *cluster = ce_step_variable(env, "SLURM_CLUSTER_NAME");
	const char *place = ce_step_variable(env, "SLURM_NODEID");
	struct ce_fields uses = memo->uses;

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
