/*
 * The recorded answer with which a step starts a container of its own without Python. The launcher of an
 * earlier step of this user with the same plan has left it for this node
 * (container_engine/node/start/recorded_start.py).
 *
 * Its request is the plan. The fields of its result: the guard's specification, the environment of the
 * container's first process, the records of the tasks' environment, working directory, the time in
 * milliseconds that a start may take, number of images whose use is recorded in a store, with the directory
 * and the target of each record, number of places where the step's port is (step_port.h) and of each "s", "b"
 * or "r", for specification, first process or records, with the offset in that text, number of words of the
 * command that runs start-up steps and each of them, and the fields of step_trace.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/answers.h"
#include "startup.h"
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
 * match container_engine/node/answers_directory.py. */
#define CE_VAR_TMP "/var/tmp"

/* Open the directory of the user's answers of a kind below `temporary`, which is CE_VAR_TMP outside tests;
 * make it if `is_made`. `uid` is the user's outside of the session's user namespace. Return -1 unless each
 * directory that the engine has made for them is this user's alone, and not a symlink. */
int ce_own_answers(const char *temporary, uid_t uid, const char *kind, bool is_made);

/* Read the result of an answer, into whose text *start then points. Return 0, or -1 if it has another form or
 * anything in it is doubtful. */
int ce_start_read(const struct ce_answer *answer, struct ce_start_answer *start);

/* Write the port of this step where the answer has that of the step that left it. Return 0, or -1 if the
 * launcher has to start the container. */
int ce_start_enter_port(struct ce_start_answer *start, const struct ce_step_env *env);

/* Record in the images' stores that this step uses them, on the first node of the step, as
 * container_engine/node/start/image_in_use.py does. Return 0, or -1 if the launcher has to do it. */
int ce_start_note_images(const struct ce_start_answer *start, const struct ce_step_env *env);
