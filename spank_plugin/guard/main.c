/*
 * ce-guard: begins a start on a node, with the arguments of enum ce_launcher_arg. Ordinarily it then becomes
 * the launcher, which is Python. Where the launcher of an earlier step with the same plan has left a recorded
 * answer (common/answers.h) that is still right, it answers the plugin itself, in two cases:
 *
 *  - A step joins a running container of its job (step_answers.h). What only this step and this moment can
 * tell is checked here: the owner of the container's directory, its lock, its control socket, its images,
 * the site's rules.
 *  - A step starts a container of its own (step_answers.h). The guard makes its namespaces meanwhile, also
 * where Python starts.
 *
 * If anything is doubtful it undoes what it did and becomes the launcher, which does the same, or explains
 * why not.
 *
 * The guard (guard.c) is a child that executes nothing, which would take longer than the fork. What execve
 * would take from it, it gives up itself: the plan, the step's variables, descriptors. The launcher, `ce run`
 * and the plugin, for a job's images, execute this program as a guard, with those of enum ce_guard_arg.
 *
 * Runs as the user. Exit code: 0 after an answer, 125 for a failure of the engine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/answers.h"
#include "common/error.h"
#include "common/exec_check.h"
#include "common/io.h"
#include "common/planner_output.h"
#include "common/program.h"
#include "common/protocol.h"
#include "guard.h"
#include "reply.h"
#include "site_rules.h"
#include "step_answers.h"
#include "step_trace.h"
#include "visit.h"

#define NODE_NAME "SLURMD_NODENAME" /* set by the plugin, from the environment of the first task */

enum { MAX_TEXT = 64 * 1024 * 1024, OTHERS = 077, REPORT_MS = 5000 };

struct start {
	int given[CE_ARG_FDS];
	const char *prefix, *node;
	struct ce_step_env env;
	char directory[PATH_MAX]; /* of the container */
	char *plan, *environment; /* on the heap, as is the answer */
	struct ce_answer answer;
	struct ce_join_answer joining; /* its result */
	struct ce_start_answer own;    /* its result, for a container of the step's own */
	struct ce_visit visit;
	struct ce_step_trace trace;
	struct ce_phases phases;
	int lock, control;
	struct {
		pid_t pid; /* of the process that starts the guard; 0 or -1 for none */
		int control, specification;
	} early;
};

/* ---- becoming the launcher --------------------------------------------------------------------- */

/* Report to the plugin that a program cannot be started. Return the exit code. */
static int fail(int reply, const char *program)
{
	int number = errno;
	char why[CE_WHY_SIZE];

	ce_not_started(program, number, why);
	ce_answer_not_started(reply, program, why, ce_start_help(number));
	return CE_EXIT_ENGINE;
}

/* Become the launcher, with the descriptors of our command line and those of a guard that was started early,
 * or of start-up steps that have failed. On failure answer the plugin, and return the exit code. */
static int become_launcher(const struct start *start, char **given)
{
	char program[PATH_MAX + 64], numbers[CE_ARG_MOST][16];
	char *argv[1 + CE_ARG_MOST + 1] = { program };
	const struct ce_startup *startup = &start->own.startup;
	int more[CE_ARG_MOST] = { 0 }, count = CE_ARG_COUNT;

	snprintf(program, sizeof program, "%s/libexec/container-engine/launcher", start->prefix);
	for (int i = 0; i < CE_ARG_COUNT; i++)
		argv[1 + i] = given[1 + i];
	if (start->early.pid > 0) {
		more[count++] = start->early.control;
		more[count++] = start->early.specification;
		more[count++] = (int)start->early.pid;
		(void)fcntl(start->early.control, F_SETFD, 0);
		(void)fcntl(start->early.specification, F_SETFD, 0);
	} else if (startup->log >= 0) {
		more[count++] = startup->log;
		more[count++] = startup->status;
		(void)fcntl(startup->log, F_SETFD, 0);
	}
	for (int i = CE_ARG_COUNT; i < count; i++) {
		snprintf(numbers[i], sizeof numbers[i], "%d", more[i]);
		argv[1 + i] = numbers[i];
	}
	for (int i = 0; i < CE_ARG_FDS; i++)
		(void)fcntl(start->given[i], F_SETFD, 0);
	unsetenv(NODE_NAME);
	execv(program, argv);
	return fail(start->given[CE_ARG_REPLY], program);
}

/* ---- what there is ----------------------------------------------------------------------------- */

/* Return whether the directory is this user's alone, and not a symlink. */
static int is_private(const char *path)
{
	struct stat found;

	return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
	       (found.st_mode & OTHERS) == 0;
}

/* Find the directory of the container. Return 0, or -1 unless it and the two above it, which are the user's,
 * too, are private. */
static int find_directory(struct start *start, const struct ce_wanted *wanted)
{
	char *path = start->directory;
	const char *job = ce_step_variable(&start->env, "SLURM_JOB_ID");
	int length = snprintf(path, PATH_MAX, "%s/ce-kept-%u", wanted->directory, (unsigned)geteuid());

	if (!ce_is_number(job) || length < 0 || length >= PATH_MAX || !is_private(path))
		return -1;
	length += snprintf(path + length, (size_t)(PATH_MAX - length), "/%s.%s", job, start->node);
	if (length >= PATH_MAX || !is_private(path))
		return -1;
	length += snprintf(path + length, (size_t)(PATH_MAX - length), "/%s", wanted->key);
	return length < PATH_MAX && is_private(path) ? 0 : -1;
}

static const char *variable(const void *env, const char *name)
{
	return ce_step_variable(env, name);
}

/* Find the answer to a request that an earlier step has left in a directory, -1 for none. Return 0, or -1 if
 * there is none that is still right. */
static int find_answer(struct start *start, int directory, const char *words)
{
	const struct ce_query query = { start->prefix, 0, words, strlen(words), variable, &start->env };

	return directory >= 0 ? ce_answer_find(directory, &query, &start->answer) : -1;
}

/* Find the answer for joining that an earlier step with this plan has left. Return as find_answer does. */
static int find_join(struct start *start)
{
	char place[PATH_MAX + 16];
	CE_AUTO_FREE char *words = NULL;

	snprintf(place, sizeof place, "%s/answers", start->directory);
	CE_AUTO_FD directory = ce_open_own(AT_FDCWD, place, geteuid(), OTHERS);
	if (asprintf(&words, "%s\n%s", start->directory, start->plan) < 0 ||
	    find_answer(start, directory, words) < 0)
		return -1;
	return ce_join_read(start->answer.result, &start->joining);
}

static int read_environment(struct start *start)
{
	start->environment = ce_read_file_at(start->given[CE_ARG_ENVIRONMENT], MAX_TEXT, &start->env.size);
	start->env.text = start->environment;
	return start->environment != NULL ? 0 : -1;
}

static int read_plan(struct start *start)
{
	size_t size = 0;

	start->plan = ce_read_file_at(start->given[CE_ARG_PLAN], MAX_TEXT, &size);
	return start->plan != NULL && strlen(start->plan) == size ? 0 : -1;
}

/* Return whether Slurm's name for this node can be used as a file name. */
static int has_name(const struct start *start)
{
	return start->node != NULL && *start->node != '\0' && strchr(start->node, '/') == NULL;
}

/* Return 0 if an earlier step has left an answer with which this one can join the container that `fact`
 * names, and the site has no rule that only Python judges; else -1. */
static int prepare(struct start *start, const char *fact)
{
	struct ce_wanted wanted;

	if (!has_name(start) || ce_join_wanted(fact, &wanted) < 0 || find_directory(start, &wanted) < 0 ||
	    read_plan(start) < 0)
		return -1;
	return find_join(start) == 0 && !ce_site_may_rule(start->prefix) ? 0 : -1;
}

/* ---- the container ----------------------------------------------------------------------------- */

/* Return whether the first process of a container has this environment. */
static int has_environment(int environment, const char *block, size_t block_size)
{
	size_t size = 0;
	CE_AUTO_FREE char *found = ce_read_file_at(environment, MAX_TEXT, &size);

	return found != NULL && size == block_size && memcmp(found, block, size) == 0;
}

/* Share the container's lock, and take over the container from one of its guards. Return 0, or -1 if anything
 * is doubtful. */
static int take_over_container(struct start *start)
{
	char path[PATH_MAX + 8];

	snprintf(path, sizeof path, "%s/lock", start->directory);
	start->lock = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (start->lock < 0 || flock(start->lock, LOCK_SH | LOCK_NB) < 0 ||
	    ce_visit_guard(start->directory, &start->visit) < 0)
		return -1;
	for (size_t i = 0; i < start->visit.image_count; i++) {
		if (!ce_join_knows(&start->joining, start->visit.images[i]))
			return -1;
	}
	int environment = start->visit.container[CE_AT_ENVIRONMENT];
	return has_environment(environment, start->joining.block, start->joining.block_size) ? 0 : -1;
}

/* Write the path of this step's own control socket, for later steps. Return 0, or -1 on failure. */
static int name_control_socket(const struct start *start, char path[CE_SOCKET_PATH])
{
	unsigned char chance[3];
	const char *step = ce_step_variable(&start->env, "SLURM_STEP_ID");

	if (!ce_is_number(step) || getrandom(chance, sizeof chance, 0) != (ssize_t)sizeof chance)
		return -1;
	int length = snprintf(path, CE_SOCKET_PATH, "%s/door.%s.%02x%02x%02x", start->directory, step,
			      chance[0], chance[1], chance[2]);
	return length > 0 && length < CE_SOCKET_PATH ? 0 : -1;
}

static void print_word(FILE *stream, const char *word)
{
	fwrite(word, 1, strlen(word) + 1, stream);
}

/* Return the tasks' HOME, "" for none: the answer's records change that of the step. */
static const char *home(const struct start *start)
{
	static const char name[] = "HOME";
	const struct ce_join_answer *joining = &start->joining;
	const char *found = ce_step_variable(&start->env, name);
	const char *end = joining->records + joining->records_size;

	for (const char *record = joining->records; record < end; record += strlen(record) + 1) {
		if (strcmp(record, name) == 0)
			found = "";
		else if (strncmp(record, "HOME=", sizeof name) == 0)
			found = record + sizeof name;
	}
	return found != NULL ? found : "";
}

/* Write what the guard is to do, in the format of guard/guard_ops.h. */
static void print_specification(const struct start *start, FILE *stream, const char *control_socket)
{
	const struct ce_visit *visit = &start->visit;

	fprintf(stream, "keep%c2%c%d%c", 0, 0, start->lock, 0);
	print_word(stream, control_socket);
	for (size_t i = 0; i < visit->image_count; i++) {
		int has_figures = visit->figures[i] >= 0;
		fprintf(stream, "fuse-again%c%d%c%s/libexec/container-engine/ce-image%c", 0, 3 + has_figures,
			0, start->prefix, 0);
		print_word(stream, visit->images[i]);
		fprintf(stream, "%d%c", visit->devices[i], 0);
		if (has_figures)
			fprintf(stream, "%d%c", visit->figures[i], 0);
	}
	const char *made = home(start);
	fprintf(stream, "root-inside%c%d%c%d%c", 0, *made == '/' ? 3 : 2, 0,
		visit->container[CE_AT_MOUNT_NS], 0);
	print_word(stream, start->joining.workdir);
	if (*made == '/')
		print_word(stream, made);
	fprintf(stream, "joined%c%zu%c", 0, visit->count, 0);
	for (size_t i = 0; i < visit->count; i++)
		fprintf(stream, "%d%c", visit->container[i], 0);
}

static int specification(const struct start *start)
{
	char path[CE_SOCKET_PATH];
	char *text = NULL;
	size_t size = 0;
	FILE *stream = name_control_socket(start, path) == 0 ? open_memstream(&text, &size) : NULL;

	if (stream == NULL)
		return -1;
	print_specification(start, stream, path);
	int file = fclose(stream) == 0 ? ce_memory_file("ce-specification", text, size) : -1;
	free(text);
	return file;
}

/* ---- the guard --------------------------------------------------------------------------------- */

/* Overwrite a text on the heap, and free it. */
static void forget(char **text)
{
	if (*text != NULL)
		explicit_bzero(*text, malloc_usable_size(*text));
	free(*text);
	*text = NULL;
}

/* Close and free what neither a guard nor the launcher gets. */
static void leave(struct start *start)
{
	ce_close_fd(&start->control);
	ce_step_trace_close(&start->trace);
	forget(&start->answer.text);
	forget(&start->plan);
	forget(&start->environment);
}

/* Start a guard, at whose socket `control` this process gets its report, and which finds the job's images at
 * the socket `holder`, and copies of them in the directory `staged`, unless these are NULL. Return the pid of
 * a child, which ends once there is process 1 of the PID namespace; -1 on failure. */
static pid_t start_guard(struct start *start, int control, int specification, const char *holder,
			 const char *staged)
{
	struct guard guard = GUARD_INIT;
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	guard.control = control;
	guard.watch = start->given[CE_ARG_WATCH];
	guard.life = start->given[CE_ARG_LIFE];
	guard.hold.holder = holder;
	guard.staged = staged;
	for (int i = CE_ARG_REPLY; i <= CE_ARG_ENVIRONMENT; i++)
		close(start->given[i]);
	ce_close_fd(&start->early.control);
	ce_close_fd(&start->early.specification);
	leave(start);
	(void)clearenv();
	exit(guard_live(&guard, specification, start->visit.guards_ns));
}

/* Start the guard of a step that joins. Return 0, or -1 on failure. */
static int start_joining(struct start *start)
{
	int ends[2];
	CE_AUTO_FD file = specification(start);

	if (file < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	start->control = ends[0];
	pid_t pid = start_guard(start, ends[1], file, NULL, NULL);
	close(ends[1]);
	if (pid < 0)
		return -1;
	(void)ce_await_child(pid);
	return 0;
}

/* Write the name of the socket at which the job's images are held. Return it, NULL if there are no names by
 * which it is found. */
static const char *name_holder(const struct start *start, char name[CE_HOLDER_SIZE])
{
	const char *job = ce_step_variable(&start->env, "SLURM_JOB_ID");
	int is_named = has_name(start) && ce_is_number(job);

	return is_named && snprintf(name, CE_HOLDER_SIZE, CE_HOLDER_NAME, (unsigned)geteuid(), job,
				    start->node) < CE_HOLDER_SIZE
		       ? name
		       : NULL;
}

/* Write the path of the directory of the copies of the job's images on this node. Return it, NULL if there is
 * none, or if the site has rules for images: these are about the files that the plan names. */
static const char *name_staged(const struct start *start, char path[PATH_MAX])
{
	const char *job = ce_step_variable(&start->env, "SLURM_JOB_ID");

	if (!has_name(start) || !ce_is_number(job) ||
	    snprintf(path, PATH_MAX, CE_STAGED, (unsigned)geteuid(), job, start->node) >= PATH_MAX)
		return NULL;
	return is_private(path) && !ce_site_may_rule(start->prefix) ? path : NULL;
}

/* Start the guard of a container of the step's own, which makes its namespaces while Python starts. The
 * launcher sends it the specification through a pipe; if the launcher ends before that, so does the guard. A
 * failure here is left to the launcher to report. */
static void start_early(struct start *start)
{
	char holder[CE_HOLDER_SIZE], staged[PATH_MAX];
	int ends[2], pipes[2];

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
		start->early.control = ends[0];
		start->early.specification = pipes[1];
		start->early.pid = start_guard(start, ends[1], pipes[0], name_holder(start, holder),
						 name_staged(start, staged));
		close(ends[1]);
	}
	close(pipes[0]);
}

/* ---- the answer -------------------------------------------------------------------------------- */

/* Wait for the guard's report. Return it, valid until the next call, or NULL if there is none in time or it
 * is not that of a ready container. */
static struct ce_report *await(struct start *start, long long timeout_ms)
{
	static struct ce_report report;

	if (ce_report_await(start->control, timeout_ms, &report) < 0)
		return NULL;
	ce_phases_of_guard(&start->phases, report.text + 1);
	ce_phase_begin(&start->phases, "environment", ce_now_ns());
	return &report;
}

/* Answer the plugin for a container that has been reported, and let its guard go on. Return 0 if the start is
 * complete, 1 if the plugin does not take the answer, -1 if anything fails before that. */
static int answer(struct start *start, struct ce_report *report, const struct ce_ready *ready)
{
	ce_phase_begin(&start->phases, "answer", ce_now_ns());
	int rc = ce_reply_ready(start->given[CE_ARG_REPLY], &start->given[CE_ARG_LIFE], report, ready);
	if (rc == 0) {
		/* if the guard has ended, the plugin has noticed */
		(void)ce_send(start->control, CE_GO_ON, 1, NULL, 0);
		ce_step_trace_write(&start->trace, &start->env, &start->phases);
	}
	ce_close_all(report->fds);
	return rc;
}

static int join(struct start *start, const char *fact)
{
	const struct ce_join_answer *joining = &start->joining;

	if (prepare(start, fact) < 0 || take_over_container(start) < 0 ||
	    ce_step_trace_open(&start->trace, &joining->trace, &start->env, start->node) < 0)
		return -1;
	ce_phase_begin(&start->phases, "namespaces", ce_now_ns());
	const struct ce_ready ready = { joining->workdir, joining->records, joining->records_size, 1,
					start->trace.file, start->trace.directory };
	struct ce_report *report = start_joining(start) < 0 ? NULL : await(start, REPORT_MS);
	return report != NULL ? answer(start, report, &ready) : -1;
}

/* ---- a container of its own -------------------------------------------------------------------- */

/* Find the answer that an earlier step has left for a start by this plan. Return as find_answer does. */
static int find_own(struct start *start)
{
	CE_AUTO_FD directory = ce_user_answers(CE_VAR_TMP, geteuid(), "starts", false);

	if (find_answer(start, directory, start->plan) < 0 ||
	    ce_start_read(&start->answer, &start->own) < 0)
		return -1;
	return ce_start_enter_port(&start->own, &start->env);
}

/* Return 0 if an earlier step has left an answer with which this one can start its container, and the site
 * has no rule that only Python judges; else -1. Root's starts are never repeated. */
static int prepare_own(struct start *start)
{
	if (geteuid() == 0 || !has_name(start) || read_plan(start) < 0 || find_own(start) < 0 ||
	    ce_site_may_rule(start->prefix))
		return -1;
	return ce_step_trace_open(&start->trace, &start->own.trace, &start->env, start->node);
}

/* Send the specification to the guard that was started early. Return 0, or -1 on failure. A guard that has
 * ended is noticed later, because it sends no report. */
static int specify(struct start *start)
{
	start->control = start->early.control;
	start->early.control = -1;
	signal(SIGPIPE, SIG_IGN);
	int rc = ce_write_all(start->early.specification, start->own.specification,
			      start->own.specification_size);
	signal(SIGPIPE, SIG_DFL);
	ce_close_fd(&start->early.specification);
	(void)ce_await_child(start->early.pid);
	start->early.pid = 0;
	return rc;
}

/* Start a container as an earlier step did, with the guard that was started early. Return as `answer`
 * does. */
static int start_again(struct start *start)
{
	struct ce_start_answer *own = &start->own;

	if (start->early.pid <= 0 || prepare_own(start) < 0)
		return -1;
	ce_phase_begin(&start->phases, "namespaces", ce_now_ns());
	if (specify(start) < 0 || ce_start_note_images(own, &start->env) < 0)
		return -1;
	struct ce_ready ready = { own->workdir, own->records, own->records_size, 0, start->trace.file,
				  start->trace.directory };
	struct ce_report *report = await(start, own->timeout_ms);
	if (report == NULL)
		return -1;
	if (own->startup.count > 0)
		ce_phase_begin(&start->phases, "startup", ce_now_ns());
	if (has_environment(report->fds[CE_REPORTED_ENVIRONMENT], own->block, own->block_size) &&
	    ce_startup_run(&own->startup, &start->env, report, own->timeout_ms, start->prefix, &ready) == 0)
		return answer(start, report, &ready);
	ce_close_all(report->fds);
	return -1;
}

/* Join or start a container as an earlier step did. Return as `answer` does. */
static int start_without_python(struct start *start)
{
	if (read_environment(start) < 0)
		return -1;
	const char *fact = ce_step_variable(&start->env, CE_CARRY_JOB_CONTAINER);
	if (fact != NULL)
		return join(start, fact);
	start_early(start);
	return start_again(start);
}

/* Undo what the launcher begins again. A guard that has begun ends when its socket to this process closes. */
static void undo(struct start *start)
{
	leave(start);
	ce_visit_close(&start->visit);
	ce_close_fd(&start->lock);
}

static int start_step(char **argv)
{
	int64_t now = ce_now_ns();
	struct start start = { .visit.guards_ns = -1,
			       .trace = { -1, -1, NULL },
			       .lock = -1,
			       .control = -1,
			       .early = { .control = -1, .specification = -1 },
			       .own.startup.log = -1,
			       .node = getenv(NODE_NAME) };

	for (int i = 0; i < CE_ARG_FDS; i++) {
		start.given[i] = ce_descriptor(argv[1 + i]);
		if (start.given[i] < 0)
			return CE_EXIT_ENGINE;
	}
	start.prefix = ce_find_prefix();
	const char *begun = argv[1 + CE_ARG_BEGUN];
	ce_phase_begin(&start.phases, "launch", ce_is_number(begun) ? atoll(begun) : 0);
	ce_phase_begin(&start.phases, "prepare", now);
	if (start.prefix == NULL)
		return fail(start.given[CE_ARG_REPLY], argv[0]);
	int rc = start_without_python(&start);
	if (rc >= 0)
		_exit(rc == 0 ? 0 : CE_EXIT_ENGINE);
	undo(&start);
	return become_launcher(&start, argv);
}

int main(int argc, char **argv)
{
	ce_open_standard_streams();
	if (argc == 1 + CE_ARG_COUNT)
		return start_step(argv);
	struct guard guard = GUARD_INIT;
	if (argc != 1 + CE_GUARD_LEAST && argc != 1 + CE_GUARD_MOST) {
		dprintf(2, "ce-guard: started by the container engine only\n");
		return CE_EXIT_ENGINE;
	}
	guard.control = ce_descriptor(argv[1 + CE_GUARD_CONTROL]);
	guard.watch = ce_descriptor(argv[1 + CE_GUARD_WATCH]);
	guard.life = ce_descriptor(argv[1 + CE_GUARD_LIFE]);
	int specification = ce_descriptor(argv[1 + CE_GUARD_SPECIFICATION]);
	int user_ns = argc == 1 + CE_GUARD_MOST ? ce_descriptor(argv[1 + CE_GUARD_USER_NS]) : -1;
	if (guard.control < 0 || guard.watch < 0 || specification < 0)
		return CE_EXIT_ENGINE;
	return guard_live(&guard, specification, user_ns);
}
