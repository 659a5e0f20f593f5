/*
 * The memo for a step that starts a container of its own: the launcher of an earlier step of this user with the same plan has
 * left it for this node (container_engine/node/start/start_memo.py), and no Python starts.
 *
 * Its fields (common/memo_file.h): version of the engine, its prefix, the node's host name and boot, the user's, group's and
 * other groups' ids, number of variables and "=" with the value of each, or "-", the plan, number of files that the launcher has looked at, the kind of look with the path and the
 * signature of each, the guard's specification, the environment of the container's first process, the records of the tasks'
 * environment, working directory, the time that a start may take in milliseconds, number of records that an image is in use
 * with the directory and the target of each, what step_memo.h has, and an end mark.
 *
 * container_engine/node/file_signatures.py has what a look is. Its signature changes with what it is of, even if that is absent.
 */
#ifndef CE_START_MEMO_H
#define CE_START_MEMO_H

#include <stddef.h>
#include <stdint.h>

#include "step_memo.h"

enum { CE_START_VARIABLES = 4, CE_START_NAME = 32, CE_START_MOST = 1 << 20 };

/* The step's variables that a start depends on (container_engine/node/start/environment.py, of_launchers). */
extern const char *const ce_start_variables[CE_START_VARIABLES];

/* A start for which a memo is looked for. */
struct ce_start_wanted {
	const char *prefix, *plan, *host;
	const struct ce_step_env *env;
};

struct ce_start_memo {
	const char *prefix, *host, *boot, *ids, *plan, *workdir;
	struct ce_fields variables, looks, uses;
	const char *specification, *block, *records;
	size_t specification_size, block_size, records_size;
	long long timeout_ms;
	struct ce_step_memo step;
};

/* Write the name of the file with the memo of such a start. */
void ce_start_name(const struct ce_start_wanted *wanted, char name[CE_START_NAME]);

/* Read a memo of this size, with a NUL after it, into which *memo then points. Return -1 for every doubt. */
int ce_start_read(const char *text, size_t size, struct ce_start_memo *memo);

/* Return whether the memo is of such a start, and nothing that its launcher looked at has changed. */
int ce_start_suits(const struct ce_start_memo *memo, const struct ce_start_wanted *wanted);

/* Record in the images' stores that this step uses them, as container_engine/node/start/image_in_use.py does. Return -1 if
 * that is for the launcher to do. */
int ce_start_note_images(const struct ce_start_memo *memo, const struct ce_step_env *env);

#endif
