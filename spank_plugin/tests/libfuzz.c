/*
 * For libFuzzer: input that grows towards code it has not reached, for everything in C that reads untrusted
 * bytes. fuzz.c beside it needs no clang and knows the formats; this one finds what nobody has thought of.
 * `make -C spank_plugin libfuzz`; corpus/ has pieces of real launches.
 *
 * The first byte of an input selects the reader. Operations of the guard and commands of services are not
 * executed, only read: every byte of their words is read.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer_text.h"
#include "common/io.h"
#include "common/join.h"
#include "guard/guard.h"
#include "guard/guard_ops.h"
#include "guard/step_answers.h"
#include "guard/visit.h"
#include "image/squash.h"
#include "image/squash_walk.h"
#include "plugin/carry.h"
#include "plugin/launcher_reply.h"
#include "start/plan_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile size_t looked_at;

static int look_at(char *const *words)
{
	for (; *words != NULL; words++)
		looked_at += strlen(*words);
	return -1;
}

/* the reader of ce-reaper, whose operations are replaced by reads */
static int look_at_path(const char *path)
{
	looked_at += strlen(path);
	return 0;
}
static char *const words[] = { NULL }; /* an argv for the fork in the main of ce-reaper */
#define main reaper_main
#define fork() look_at(words)
#define unlink(path) look_at_path(path)
int reaper_main(int argc, char **argv);
#include "programs/reaper.c"
#undef main
#undef fork
#undef unlink

/* ---- operations of the guard ------------------------------------------------------------------- */

static int read_only(struct guard *guard, char **args)
{
	(void)guard;
	(void)look_at(args);
	return 0;
}

#define STUB(name)                                                                           \
	int guard_op_##name(struct guard *guard, char **args)                                \
	{                                                                                    \
		return read_only(guard, args);                                               \
	}
STUB(session)
STUB(dir)
STUB(file)
STUB(environment)
STUB(fuse)
STUB(overlay)
STUB(served)
STUB(hold)
STUB(root_dir)
STUB(root_devices)
STUB(root_place)
STUB(root_order)
STUB(root_entry)
STUB(root_bind)
STUB(root_first)
STUB(root_link)
STUB(root_setting)
STUB(root_copy)
STUB(root_remove)
STUB(bind)
STUB(more)
STUB(note)
STUB(create)
STUB(container)
STUB(keep)
STUB(fuse_again)
STUB(root_again)
STUB(root_inside)
STUB(bind_inside)
STUB(joined)
STUB(each)
STUB(limits)

int guard_keep_container(struct guard *guard, const int container[], size_t count)
{
	(void)guard, (void)container, (void)count;
	return 0;
}

static void read_operations(char *text, size_t size)
{
	struct guard guard = GUARD_INIT;

	(void)guard_run_operations(&guard, text, size);
	ce_error_clear(&guard.err);
}

/* ---- the other readers ------------------------------------------------------------------------- */

static void read_services(char *text, size_t size)
{
	/* with a NUL after it, as ce_read_all returns it */
	const struct services self = { -1, -1, -1, text, size };

	run_operations(&self, "stop");
	run_operations(&self, "remove");
	run_operations(&self, "poststop");
}

static int set_variable(void *context, const char *name, const char *value)
{
	(void)context;
	looked_at += strlen(name) + (value != NULL ? strlen(value) : 0);
	return 0;
}

static const char *get_variable(void *context, const char *name)
{
	(void)context;
	looked_at += strlen(name);
	return name[0] == 'S' ? "1" : NULL;
}

static void read_records(char *text, size_t size)
{
	const struct ce_variables variables = { set_variable, get_variable, NULL };
	struct ce_error err = CE_ERROR_INIT;
	CE_AUTO_FD file = ce_memory_file("records", text, size);

	if (file >= 0)
		(void)ce_apply_environment(file, &variables, &err);
	ce_error_clear(&err);
}

/* Read a plan from an environment: NUL-terminated NAME=value, as many as fit. */
static void read_carried(char *text, size_t size)
{
	enum { MOST = 64 };
	char *environment[MOST + 1] = { NULL };
	size_t count = 0;

	for (char *next = text; next < text + size && count < MOST; next += strlen(next) + 1)
		environment[count++] = next;
	free(ce_carry_get(environment));
}

static void read_answer(char *text, size_t size)
{
	struct ce_container container = CE_CONTAINER_INIT;
	struct ce_error err = CE_ERROR_INIT;
	int ends[2], fds[CE_MAX_FDS] = { 0 };

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		abort();
	if (ce_send(ends[1], text, size, fds, size % (CE_MAX_FDS + 1)) == 0) {
		(void)ce_reply_is_ready(ends[0]);
		if (ce_reply_look(ends[0], &container, &err) == 0 &&
		    (container.guard < 0 || container.workdir == NULL))
			abort();
	}
	ce_container_close(&container);
	ce_error_clear(&err);
	close(ends[0]);
	close(ends[1]);
}

/* Read an image, which is small enough for an input because its tables are. libsquashfs is not instrumented,
 * but its memory is. */
static void read_image(char *text, size_t size)
{
	char path[64];
	const char *why;
	CE_AUTO_FD file = ce_memory_file("image", text, size);

	if (file < 0)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	struct squash *squash = squash_open(path, &why);
	if (squash == NULL)
		return;
	squash_ask_all(squash);
	squash_close(squash);
}

static const char *step_variable(const void *env, const char *name)
{
	return ce_step_variable(env, name);
}

/* Read all bytes of what a result has, if it is one. */
static void read_result(const struct ce_answer *answer, const struct ce_step_env *env)
{
	struct ce_join_answer join;
	struct ce_start_answer start;
	struct ce_plan plan;

	if (ce_join_read(answer->result, &join) == 0) {
		for (size_t i = 0; i < join.records_size; i++)
			looked_at += (size_t)join.records[i];
		looked_at += strlen(join.workdir) + strlen(join.trace.of_plan);
		looked_at += (size_t)ce_join_knows(&join, "/i.sqsh");
	}
	if (ce_start_read(answer, &start) == 0) {
		for (size_t i = 0; i < start.specification_size; i++)
			looked_at += (size_t)start.specification[i];
		looked_at += strlen(start.workdir) + (size_t)ce_start_enter_port(&start, env);
	}
	if (ce_plan_read(answer->result, &plan) == 0) {
		looked_at += strlen(plan.notices);
		free(ce_plan_text(&plan));
	}
}

/* Read a recorded answer, whose result is a plan, or that for joining or starting a container. Before what
 * follows the request the input has the value of CE_CARRY_JOB_CONTAINER and an environment, each up to a
 * form feed. The checksum is right: it must not be what protects the reader. */
static void read_recorded(char *text, size_t size)
{
	struct ce_wanted wanted;
	char *environment = strchr(text, '\f');
	char *rest = environment != NULL ? strchr(environment + 1, '\f') : NULL;

	if (rest == NULL)
		return;
	*environment++ = *rest++ = '\0';
	if (ce_join_wanted(text, &wanted) == 0)
		looked_at += strlen(wanted.directory) + strlen(wanted.key);
	const struct ce_step_env env = { environment, (size_t)(rest - environment) };
	const struct ce_query query = { "/p", 0, "x", 1, step_variable, &env };
	size_t left = size - (size_t)(rest - text);
	struct ce_answer answer = { .text = answer_text(&query, rest, left, &size) };
	if (answer_check(&query, size, &answer) == 0)
		read_result(&answer, &env);
	free(answer.text);
}

/* Read packets of a guard at its control socket. Each begins with a letter for the number of its
 * descriptors, and ends with a form feed. */
static void read_visit(char *text, size_t size)
{
	struct ce_visit visit = { .guards_ns = -1 };
	int ends[2], fds[CE_MAX_FDS];

	for (size_t i = 0; i < CE_MAX_FDS; i++)
		fds[i] = STDERR_FILENO;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		abort();
	for (char *next = text, *end; (end = memchr(next, '\f', (size_t)(text + size - next))) != NULL;
	     next = end + 1) {
		size_t count = (size_t)(next[0] - 'a');
		if (count > CE_MAX_FDS ||
		    ce_send(ends[1], next + 1, (size_t)(end - next) - 1, fds, count) < 0)
			break;
	}
	close(ends[1]);
	if (ce_visit_read(ends[0], &visit) == 0 && visit.count < CE_AT_UNSHARED)
		abort();
	ce_visit_close(&visit);
	close(ends[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const readers[])(char *, size_t) = { read_operations, read_services,
							   read_records, read_carried,
							   read_answer, read_image, read_recorded,
							   read_visit };

	unsigned which = size > 0 ? (unsigned)(data[0] - '0') : UINT_MAX;
	if (which >= sizeof readers / sizeof readers[0])
		return 0;
	/* on the heap and of its own size, so that no read beyond it goes unnoticed; what comes from a file
	 * or an environment ends with a NUL, the guard's specification does not */
	char *text = calloc(1, size - 1 + (which > 0 || size == 1));
	if (text == NULL)
		return 0;
	memcpy(text, data + 1, size - 1);
	readers[which](text, size - 1);
	free(text);
	return 0;
}
