/*
 * The memo with which a step starts a container of its own without Python. The launcher of an earlier step of
 * this user with the same plan has left it for this node (container_engine/node/start/start_memo.py).
 *
 * Its fields (common/memo_file.h): version of the engine, its prefix, the node's host name and boot, the
 * ids of the user, the group and the other groups, their names as ce-user prints them, or nothing if
 * /etc/passwd and /etc/group have them (number of bytes, and the bytes), number of the step's variables that
 * the launcher asked for and of each its name and "=" with the value, "+" for any value, or "-", the plan,
 * number of the aspects of files that the start depended on and of each the aspect and the signature, the
 * guard's specification, the environment of the container's first process, the records of the tasks'
 * environment, working directory, the time in milliseconds that a start may take, number of images whose use
 * is recorded in a store, with the directory and the target of each record, number of places where the step's
 * port is (step_port.h) and of each "s", "b" or "r", for specification, first process or records, with the
 * offset in that text, the fields of step_memo.h, and the word "end".
 *
 * container_engine/base/answers.py says what an aspect, there a question, is. A signature describes the
 * state of a file, or its absence.
 */
#ifndef CE_START_MEMO_H
#define CE_START_MEMO_H

#include <stddef.h>
#include <sys/types.h>

#include "step_memo.h"

enum { CE_START_VARIABLES = 4, CE_START_NAME = 32, CE_START_MOST = 1 << 20 };

/* The step's variables by whose values memos have names, since most starts depend on them (`of_launchers` in
 * node/container/environment.py). All others that a start depends on are in its memo. */
extern const char *const ce_start_variables[CE_START_VARIABLES];

/* A start for which a memo is looked for. */
struct ce_start_wanted {
	const char *prefix, *plan, *host;
	const struct ce_step_env *env;
};

struct ce_start_memo {
	const char *prefix, *host, *boot, *ids, *names, *plan, *workdir;
	struct ce_fields variables, aspects, uses, ports;
	char *specification, *block, *records;
	size_t names_size, specification_size, block_size, records_size;
	long long timeout_ms;
	struct ce_step_memo step;
};

/* Write the name of the file in which the memo of such a start is. */
void ce_start_name(const struct ce_start_wanted *wanted, char name[CE_START_NAME]);

/* The directory below which the memos of all users are. A job with a /tmp of its own sees it, too. It must
 * match container_engine/node/memo_directory.py. */
#define CE_MEMOS "/var/tmp"

/* Open the directory of the user's memos of starts below `temporary`, which is CE_MEMOS outside tests. Return
 * -1 unless each directory that the engine has made for them is this user's alone, and not a symlink. */
int ce_own_starts(const char *temporary, uid_t uid);

/* Read a memo of this size, with a NUL after it, into which *memo then points. Return 0, or -1 if it is of
 * another version or anything in it is doubtful. */
int ce_start_read(char *text, size_t size, struct ce_start_memo *memo);

/* Return whether the memo is of such a start, by this user since the node's last boot, and nothing that its
 * launcher looked at has changed. */
int ce_start_suits(const struct ce_start_memo *memo, const struct ce_start_wanted *wanted);

/* Write the port of this step where the memo has that of the step that left it. Return 0, or -1 if the
 * launcher has to start the container. */
int ce_start_enter_port(struct ce_start_memo *memo, const struct ce_step_env *env);

/* Record in the images' stores that this step uses them, on the first node of the step, as
 * container_engine/node/start/image_in_use.py does. Return 0, or -1 if the launcher has to do it. */
int ce_start_note_images(const struct ce_start_memo *memo, const struct ce_step_env *env);

#endif
