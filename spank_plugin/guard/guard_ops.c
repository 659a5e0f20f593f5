#define _GNU_SOURCE
#include "guard_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/fields.h"
#include "common/io.h"
#include "guard.h"

static const struct operation {
	const char *name;
	long least_args;
	guard_operation *run;
} operations[] = {
	{ "session", 2, guard_op_session },
	{ "limits", 4, guard_op_limits },
	{ "dir", 1, guard_op_dir },
	{ "file", 2, guard_op_file },
	{ "environment", 2, guard_op_environment },
	{ "fuse", 3, guard_op_fuse },
	{ "overlay", 4, guard_op_overlay },
	{ "served", 1, guard_op_served },
	{ "hold", 2, guard_op_hold },
	{ "root-dir", 2, guard_op_root_dir },
	{ "root-place", 3, guard_op_root_place },
	{ "root-devices", 1, guard_op_root_devices },
	{ "root-order", 2, guard_op_root_order },
	{ "root-entry", 4, guard_op_root_entry },
	{ "root-bind", 3, guard_op_root_bind },
	{ "root-first", 3, guard_op_root_first },
	{ "root-link", 3, guard_op_root_link },
	{ "root-setting", 3, guard_op_root_setting },
	{ "root-copy", 3, guard_op_root_copy },
	{ "root-remove", 2, guard_op_root_remove },
	{ "bind", 2, guard_op_bind },
	{ "more", 1, guard_op_more },
	{ "note", 1, guard_op_note },
	{ "crun", 1, guard_op_create },
	{ "podman", 1, guard_op_create },
	{ "container", 2, guard_op_container },
	{ "keep", 2, guard_op_keep },
	{ "fuse-again", 3, guard_op_fuse_again },
	{ "root-again", 2, guard_op_root_again },
	{ "root-inside", 2, guard_op_root_inside },
	{ "bind-inside", 2, guard_op_bind_inside },
	{ "joined", CE_AT_UNSHARED, guard_op_joined },
	{ "each", 2, guard_op_each },
};

static const struct operation *find_operation(const char *name)
{
	for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	}
	return NULL;
}

/* Return the next `count` fields and NULL, on the heap; NULL if there are fewer, or without memory. */
static char **take_args(struct ce_fields *fields, long long count)
{
	char **args = calloc((size_t)count + 1, sizeof *args);

	for (long long i = 0; args != NULL && !fields->bad && i < count; i++)
		args[i] = (char *)ce_take(fields);
	if (!fields->bad)
		return args;
	free(args);
	return NULL;
}

/* Run the operations that the last one has added, if any. */
static int run_added(struct guard *guard)
{
	CE_AUTO_FREE char *added = guard->more;

	guard->more = NULL;
	if (added == NULL)
		return 0;
	guard->in_more = 1;
	int rc = guard_run_operations(guard, added, guard->more_size);
	guard->in_more = 0;
	return rc;
}

int guard_run_operations(struct guard *guard, const char *specification, size_t size)
{
	struct ce_fields fields = { specification, specification + size, 0 };

	guard->run = guard_run_operations;
	while (fields.next < fields.end) {
		const struct operation *op = find_operation(ce_take(&fields));
		long long count = ce_take_number(&fields);
		errno = EINVAL;
		if (op == NULL || fields.bad || count < op->least_args || count > (long long)size)
			return guard_fail(guard, "bad operation in the specification");
		CE_AUTO_FREE char **args = take_args(&fields, count);
		if (args == NULL)
			return guard_fail(guard, "specification cut short");
		guard->stage = op->name;
		guard_note_time(guard, op->name);
		guard->rest = fields.next;
		guard->rest_size = (size_t)(fields.end - fields.next);
		int rc = op->run(guard, args);
		if (rc < 0 || run_added(guard) < 0)
			return -1;
		if (rc == GUARD_REST_DONE)
			break;
	}
	return 0;
}
