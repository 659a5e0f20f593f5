#define _GNU_SOURCE
#include "step_trace.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/io.h"
#include "common/planner_output.h"
#include "common/remove_tree.h"

/* The traces of KEPT_STEPS steps are kept, as by trace.py. Each is looked at to find the oldest, so they are
 * removed together, once there are more than MOST_STEPS. Of steps on many nodes, which have a file for each,
 * fewer are kept, and they are removed one by one. */
enum { KEPT_STEPS = 200, MOST_STEPS = 256, LEAST_STEPS = 10, MOST_FILES = 20000, OTHERS_WRITE = 022 };
enum { LONG_LIST = 200 }; /* characters of a list of nodes, of which one trace is enough */

/* ---- what an answer has of it ------------------------------------------------------------------ */

void ce_trace_read(struct ce_fields *fields, struct ce_trace_parts *parts)
{
	parts->directory = ce_take(fields);
	parts->begin = ce_take(fields);
	parts->of_plan = ce_take(fields);
	parts->mounts = ce_take(fields);
	parts->stems = ce_take_table(fields, 1);
}

/* Return whether the name in `entry` contains the text, whatever the case of its letters. */
static int is_named(const char *entry, size_t length, const char *stem)
{
	size_t wanted = strlen(stem);

	for (size_t i = 0; i + wanted <= length; i++) {
		size_t same = 0;
		while (same < wanted && toupper((unsigned char)entry[i + same]) == (unsigned char)stem[same])
			same++;
		if (same == wanted)
			return 1;
	}
	return 0;
}

/* Return whether a variable may be a secret: by its name, or because its name has other letters than ASCII's,
 * whose capital forms are not known here. */
static int may_be_secret(struct ce_fields stems, const char *entry, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if ((unsigned char)entry[i] >= 0x80)
			return 1;
	}
	for (long long left = ce_take_number(&stems); left > 0; left--) {
		if (is_named(entry, length, ce_take(&stems)))
			return 1;
	}
	return 0;
}

/* Return whether the trace's text about mounts contains the value of a variable that may be a secret. */
static int shows_secret(const struct ce_trace_parts *parts, const struct ce_step_env *env)
{
	const char *entry;

	for (size_t at = 0; (entry = ce_step_next(env, &at)) != NULL;) {
		size_t length = strcspn(entry, "=");
		const char *value = entry + length + (entry[length] == '=');
		if (strlen(value) > 1 && strstr(parts->mounts, value) != NULL &&
		    may_be_secret(parts->stems, entry, length))
			return 1;
	}
	return 0;
}

/* ---- its file ---------------------------------------------------------------------------------- */

static int open_file(struct ce_step_trace *trace, const char *step, const char *node)
{
	char name[NAME_MAX + 1];
	int length = snprintf(name, sizeof name, "%s.json", node);

	if (length < 0 || (size_t)length >= sizeof name || (mkdir(step, 0700) < 0 && errno != EEXIST))
		return -1;
	CE_AUTO_FD place = ce_open_own(AT_FDCWD, step, geteuid(), OTHERS_WRITE);
	trace->directory = place >= 0 ? open(step, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	if (trace->directory < 0)
		return -1;
	trace->file =
		openat(place, name, O_WRONLY | O_CREAT | O_APPEND | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return trace->file >= 0 ? 0 : -1;
}

/* ---- its line ---------------------------------------------------------------------------------- */

/* Return whether the text needs no escapes in JSON. */
static int is_plain(const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
			return 0;
	}
	return 1;
}

static const char *value_of(const struct ce_step_env *env, const char *name)
{
	const char *value = ce_step_variable(env, name);

	return value != NULL ? value : "";
}

static int is_first(const struct ce_step_env *env)
{
	return strcmp(value_of(env, "SLURM_NODEID"), "0") == 0;
}

/* Slurm's settings of the step, as in container_engine/node/report/trace.py. */
static const char *const settings[] = {
	"SLURM_JOB_PARTITION", "SLURM_JOB_QOS",	     "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE",
	"SLURM_MEM_PER_CPU",   "SLURM_GPUS_ON_NODE", "SLURM_DISTRIBUTION",  "SLURM_NETWORK",
};

/* Return the members of a JSON object with those that the step has, on the heap; NULL if anything is
 * doubtful. The first node has them for all. */
static char *make_settings(const struct ce_step_env *env)
{
	char *text = NULL;
	size_t size = 0;
	int plain = 1;
	FILE *stream = open_memstream(&text, &size);

	for (size_t i = 0; stream != NULL && i < sizeof settings / sizeof settings[0]; i++) {
		const char *value = is_first(env) ? ce_step_variable(env, settings[i]) : NULL;
		plain = plain && (value == NULL || is_plain(value));
		if (value != NULL)
			fprintf(stream, "%s\"%s\":\"%s\"", ftell(stream) > 0 ? "," : "", settings[i], value);
	}
	if (stream != NULL && fclose(stream) == 0 && plain)
		return text;
	free(text);
	return NULL;
}

static char *make_line(const struct ce_trace_parts *parts, const struct ce_step_env *env)
{
	struct utsname host;
	const char *job = value_of(env, "SLURM_JOB_ID"), *step = value_of(env, "SLURM_STEP_ID");
	const char *array = value_of(env, "SLURM_ARRAY_JOB_ID"), *task = value_of(env, "SLURM_ARRAY_TASK_ID");
	const char *nodes = value_of(env, "SLURM_STEP_NODELIST");
	const char *tasks = value_of(env, "SLURM_STEP_NUM_TASKS");
	int is_array = *array != '\0' && *task != '\0';
	CE_AUTO_FREE char *of_slurm = make_settings(env);
	char *line;

	if (strlen(nodes) > LONG_LIST && !is_first(env))
		nodes = "";
	if (of_slurm == NULL || uname(&host) < 0 || !is_plain(host.nodename) || !is_plain(job) ||
	    !is_plain(step) || !is_plain(array) || !is_plain(task) || !is_plain(nodes) || !is_plain(tasks))
		return NULL;
	if (asprintf(&line,
		     "%s\"job\":\"%s\",\"step\":\"%s\",\"array\":\"%s%s%s\",\"host\":\"%s\",\"nodes\":\"%s\","
		     "\"tasks\":\"%s\",\"slurm\":{%s},%s",
		     parts->begin, job, step, is_array ? array : "", is_array ? "_" : "",
		     is_array ? task : "", host.nodename, nodes, tasks, of_slurm, parts->of_plan) < 0)
		return NULL;
	return line;
}

int ce_step_trace_open(struct ce_step_trace *trace, const struct ce_trace_parts *parts,
		       const struct ce_step_env *env, const char *node)
{
	char path[PATH_MAX];
	const char *job = value_of(env, "SLURM_JOB_ID"), *step = value_of(env, "SLURM_STEP_ID");

	*trace = (struct ce_step_trace){ -1, -1, NULL };
	if (parts->directory[0] == '\0')
		return 0;
	if (shows_secret(parts, env))
		return -1;
	int length = snprintf(path, sizeof path, "%s/%s.%s", parts->directory, job, step);
	if (length < 0 || (size_t)length >= sizeof path || strchr(step, '/') != NULL || *step == '\0')
		return -1;
	trace->line = make_line(parts, env);
	return trace->line != NULL ? open_file(trace, path, node) : -1;
}

static void print_phase(FILE *stream, const char *name, int64_t begin, int64_t end, const char *comma)
{
	fprintf(stream, "{\"name\":\"%s\",\"begin\":%lld,\"end\":%lld}%s", name, (long long)begin,
		(long long)(end > begin ? end : begin), comma);
}

/* The operations of the guard that begin a phase, as in container_engine/node/report/trace.py. */
static const struct operation {
	const char *name, *phase;
} operations[] = { { "session", "mount" }, { "crun", "create" }, { "container", "init" } };

static const char *phase_of(const char *operation, size_t length)
{
	for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
		if (strlen(operations[i].name) == length &&
		    strncmp(operations[i].name, operation, length) == 0)
			return operations[i].phase;
	}
	return NULL;
}

void ce_phase_begin(struct ce_phases *phases, const char *name, int64_t when)
{
	if (phases->count == CE_MOST_PHASES)
		return;
	phases->all[phases->count].name = name;
	phases->all[phases->count++].begin = when;
}

void ce_phases_of_guard(struct ce_phases *phases, const char *times)
{
	int64_t offset = ce_now_ns() - ce_clock_ns(CLOCK_MONOTONIC);

	while (*times != '\0') {
		size_t length = strcspn(times, " \n");
		const char *phase = phase_of(times, length);
		if (phase != NULL)
			ce_phase_begin(phases, phase, strtoll(times + length, NULL, 10) + offset);
		times += strcspn(times, "\n");
		times += *times == '\n';
	}
}

/* Print the phase in which srun planned; the variable has the times of its beginning and end. */
static void print_plan(FILE *stream, const struct ce_step_env *env)
{
	const char *times = value_of(env, CE_CARRY_TIMES);
	char *blank, *rest;
	/* not sscanf, which is an eighth of the program */
	long long begin = strtoll(times, &blank, 10), end = strtoll(blank, &rest, 10);

	if (times[strspn(times, "0123456789 ")] == '\0' && blank > times && rest > blank && *rest == '\0')
		print_phase(stream, "plan", begin, end, ",");
}

/* ---- older traces ------------------------------------------------------------------------------ */

struct step {
	long long changed;
	char name[32];
};

static int by_age(const void *left, const void *right)
{
	const struct step *a = left, *b = right;

	return (a->changed > b->changed) - (a->changed < b->changed);
}

/* Return whether this is the directory of another step than the current one, and this user's; then describe
 * it. */
static int is_other_step(int traces, const char *name, ino_t current, struct step *step)
{
	size_t job = strspn(name, "0123456789");
	struct stat found;

	if (job == 0 || name[job] != '.' || !ce_is_number(name + job + 1) ||
	    strlen(name) >= sizeof step->name ||
	    fstatat(traces, name, &found, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(found.st_mode) ||
	    found.st_uid != geteuid() || found.st_ino == current)
		return 0;
	step->changed = ce_in_ns(found.st_mtim);
	memcpy(step->name, name, strlen(name) + 1);
	return 1;
}

static size_t count_steps(DIR *traces)
{
	const char *name;
	size_t count = 0;

	while ((name = ce_next_name(traces)) != NULL)
		count += isdigit((unsigned char)name[0]) != 0;
	return count;
}

/* Remove the traces of this user's oldest steps if there are too many. Other starts may be doing the same. */
static void forget_oldest(const struct ce_step_trace *trace, size_t nodes)
{
	size_t fit = MOST_FILES / (nodes > 0 ? nodes : 1);
	size_t kept = fit >= KEPT_STEPS ? KEPT_STEPS : fit > LEAST_STEPS ? fit : LEAST_STEPS;
	size_t most = kept == KEPT_STEPS ? MOST_STEPS : kept;
	char path[64];
	struct stat current;
	const char *name;
	size_t found = 0;

	snprintf(path, sizeof path, "/proc/self/fd/%d/..", trace->directory);
	CE_AUTO_DIR *traces = opendir(path);
	size_t count = count_steps(traces);
	if (traces == NULL || count <= most || fstat(trace->directory, &current) < 0)
		return;
	CE_AUTO_FREE struct step *steps = calloc(count, sizeof *steps);
	rewinddir(traces);
	while (steps != NULL && found < count && (name = ce_next_name(traces)) != NULL)
		found += (size_t)is_other_step(dirfd(traces), name, current.st_ino, &steps[found]);
	if (found > 0)
		qsort(steps, found, sizeof *steps, by_age);
	for (size_t i = 0; i + kept <= found; i++)
		ce_remove_tree(dirfd(traces), steps[i].name);
}

void ce_step_trace_write(const struct ce_step_trace *trace, const struct ce_step_env *env,
			 const struct ce_phases *phases)
{
	int64_t end = ce_now_ns();
	char *text = NULL;
	size_t size = 0;
	FILE *stream = trace->file >= 0 ? open_memstream(&text, &size) : NULL;

	if (stream == NULL)
		return;
	fprintf(stream, "%s\"phases\":[", trace->line);
	print_plan(stream, env);
	for (int i = 0; i < phases->count; i++) {
		int is_last = i + 1 == phases->count;
		print_phase(stream, phases->all[i].name, phases->all[i].begin,
			    is_last ? end : phases->all[i + 1].begin, is_last ? "" : ",");
	}
	fprintf(stream, "],\"error\":\"\"}\n");
	/* in one piece: the plugin appends to the same file */
	if (fclose(stream) == 0 && write(trace->file, text, size) < 0)
		errno = 0;
	free(text);
	if (is_first(env))
		forget_oldest(trace, strtoul(value_of(env, "SLURM_STEP_NUM_NODES"), NULL, 10));
}

void ce_step_trace_close(struct ce_step_trace *trace)
{
	ce_close_fd(&trace->file);
	ce_close_fd(&trace->directory);
	free(trace->line);
	trace->line = NULL;
}
