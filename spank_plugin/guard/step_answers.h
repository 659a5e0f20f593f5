/*
 * The recorded answer with which a step starts a container of its own without Python. The launcher of an
 * earlier step of this user with the same plan has left it for this node
 * (container_engine/node/start/recorded_start.py).
 *
 * Its request is the plan. The fields of its result: the guard's specification, the environment of the
 * container's first process, the records of the tasks' environment, working directory, the time in
 * milliseconds that a start may take, number of images whose use is recorded in a store, with the directory
 * and the target of each record, number of places where the step's port is and of each "s", "b" or "r", for
 * specification, first process or records, with the offset in that text, number of words of the command that
 * runs start-up steps and each of them, and the fields of step_trace.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/answers.h"
#include "common/fields.h"
#include "startup.h"
#include "step_env.h"
#include "step_trace.h"

struct ce_start_answer {
	const char *workdir;
	struct ce_fields uses, ports;
	char *specification, *block, *records;
	size_t specification_size, block_size, records_size;
	long long timeout_ms;
	struct ce_startup startup;
	struct ce_trace_parts trace;
};

/* The directory below which the answers of all users are. A job with a /tmp of its own sees it, too. It must
 * match container_engine/node/container/description.py. */
#define CE_VAR_TMP "/var/tmp"

/* Open the directory of the user's answers of a kind below `temporary`, which is CE_VAR_TMP outside tests;
 * make it if `is_made`. `uid` is the user's outside of the session's user namespace. Return -1 unless each
 * directory that the engine has made for them is this user's alone, and not a symlink. */
int ce_user_answers(const char *temporary, uid_t uid, const char *kind, bool is_made);

/* Read the result of an answer, into whose text *start then points. Return 0, or -1 if it has another form or
 * anything in it is doubtful. */
int ce_start_read(const struct ce_answer *answer, struct ce_start_answer *start);

/* Write the port of this step where the answer has that of the step that left it. Return 0, or -1 if the
 * launcher has to start the container. */
int ce_start_enter_port(struct ce_start_answer *start, const struct ce_step_env *env);

/* Record in the images' stores that this step uses them, on the first node of the step, as
 * container_engine/node/start/image_in_use.py does. Return 0, or -1 if the launcher has to do it. */
int ce_start_note_images(const struct ce_start_answer *start, const struct ce_step_env *env);

/*
 * The recorded answer with which a step joins a running container of its job without Python. The launcher of
 * an earlier step with the same plan has left it beside the container
 * (container_engine/node/job_containers/recorded_join.py).
 *
 * Its request is the container's directory, a newline and the plan. The fields of its result: number of
 * images and the path of each, the environment of the container's first process, the records of the tasks'
 * environment, working directory, and the fields of step_trace.h.
 */

enum { CE_JOB_CONTAINER_KEY = 16 };

/* The container that a plan asks to join. */
struct ce_wanted {
	char key[CE_JOB_CONTAINER_KEY + 1];
	const char *directory; /* on the node, below which it is kept; in the parsed text */
};

struct ce_join_answer {
	struct ce_fields images; /* number, then the paths */
	const char *block;	 /* NAME=value with a NUL after each */
	size_t block_size;
	const char *records; /* see common/join.h */
	size_t records_size;
	const char *workdir;
	struct ce_trace_parts trace;
};

/* Parse the value of CE_CARRY_JOB_CONTAINER, into which wanted->directory then points. Return 0, or -1 if
 * it has another form. */
int ce_join_wanted(const char *fact, struct ce_wanted *wanted);

/* Read the result of an answer, into which *join then points. Return 0, or -1 if it has another form. */
int ce_join_read(struct ce_fields result, struct ce_join_answer *join);

/* Return whether the container has an image with this path. */
int ce_join_knows(const struct ce_join_answer *join, const char *image);

/* The port of a step, which differs in each one (container_engine/node/slurm_step.py). All ports have as many
 * digits, so that one can replace another in what the answer of another step has. */
enum { CE_PORT_FIRST = 20000, CE_PORT_COUNT = 10000, CE_PORT_STEPS_APART = 16, CE_PORT_DIGITS = 5 };
