#define _GNU_SOURCE
#include "fake_spank.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

struct fake_job fake_job;

spank_t fake_spank(void)
{
	/* a handle that the plugin only passes on */
	return (spank_t)&fake_job;
}

void fake_reset(spank_context_t context)
{
	for (char **entry = fake_job.environment; *entry != NULL; entry++)
		free(*entry);
	memset(&fake_job, 0, sizeof fake_job);
	fake_job.context = context;
}

/* ---- environment ------------------------------------------------------------------------------- */

static char **find(const char *name)
{
	size_t length = strlen(name);
	char **entry = fake_job.environment;

	while (*entry != NULL && (strncmp(*entry, name, length) != 0 || (*entry)[length] != '='))
		entry++;
	return entry;
}

const char *fake_getenv(const char *name)
{
	char **entry = find(name);

	return *entry != NULL ? *entry + strlen(name) + 1 : NULL;
}

void fake_setenv(const char *name, const char *value)
{
	char **entry = find(name);

	CHECK(entry < fake_job.environment + FAKE_MAX_VARIABLES);
	free(*entry);
	CHECK(asprintf(entry, "%s=%s", name, value) > 0);
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	(void)spank;
	if (overwrite == 0 && *find(name) != NULL)
		return ESPANK_ENV_EXISTS;
	fake_setenv(name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	char **entry = find(name);

	(void)spank;
	free(*entry);
	for (; *entry != NULL; entry++)
		entry[0] = entry[1];
	return ESPANK_SUCCESS;
}

/* ---- the job ----------------------------------------------------------------------------------- */

spank_context_t spank_context(void)
{
	return fake_job.context;
}

int spank_remote(spank_t spank)
{
	(void)spank;
	return fake_job.context == S_CTX_REMOTE;
}

static spank_err_t get_number(spank_item_t item, va_list args)
{
	switch (item) {
	case S_JOB_ID:
		*va_arg(args, uint32_t *) = FAKE_JOB_ID;
		return ESPANK_SUCCESS;
	case S_JOB_NODEID: /* in its component of a heterogeneous step */
		*va_arg(args, uint32_t *) = 0;
		return ESPANK_SUCCESS;
	case S_JOB_STEPID:
		*va_arg(args, uint32_t *) = fake_job.step;
		return fake_job.step_unknown ? ESPANK_ERROR : ESPANK_SUCCESS;
	case S_JOB_UID:
		*va_arg(args, uid_t *) = fake_job.uid;
		return ESPANK_SUCCESS;
	case S_JOB_GID:
		*va_arg(args, gid_t *) = fake_job.gid;
		return ESPANK_SUCCESS;
	case S_TASK_ID:
		*va_arg(args, int *) = fake_job.task;
		return ESPANK_SUCCESS;
	case S_TASK_PID:
		*va_arg(args, pid_t *) = fake_job.task_pid;
		return fake_job.task_pid > 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
	case S_JOB_LOCAL_TASK_COUNT:
		*va_arg(args, uint32_t *) = fake_job.local_tasks;
		return ESPANK_SUCCESS;
	case S_TASK_EXIT_STATUS:
		*va_arg(args, int *) = fake_job.exit_status;
		return ESPANK_SUCCESS;
	default:
		return ESPANK_BAD_ARG;
	}
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	va_list args;
	spank_err_t rc = ESPANK_SUCCESS;

	(void)spank;
	va_start(args, item);
	if (item == S_JOB_ENV) {
		*va_arg(args, char ***) = fake_job.environment;
	} else if (item == S_JOB_ARGV) {
		*va_arg(args, int *) = fake_job.argc;
		*va_arg(args, char ***) = fake_job.argv;
	} else {
		rc = get_number(item, args);
	}
	va_end(args);
	return rc;
}

/* ---- lists of nodes: those of a cluster are read on the sandbox's ------------------------------- */

/* the type depends on the release of Slurm */
typedef __typeof__(slurm_hostlist_create("")) list_of_nodes;

list_of_nodes slurm_hostlist_create(const char *nodes)
{
	(void)nodes;
	return NULL;
}

int slurm_hostlist_find(list_of_nodes list, const char *name)
{
	(void)list;
	(void)name;
	return -1;
}

void slurm_hostlist_destroy(list_of_nodes list)
{
	(void)list;
}

/* ---- options and messages ---------------------------------------------------------------------- */

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	(void)spank;
	if (fake_job.refuse_options || fake_job.option_count == FAKE_MAX_OPTIONS)
		return ESPANK_ERROR;
	fake_job.options[fake_job.option_count++] = *option;
	return ESPANK_SUCCESS;
}

int fake_give_option(const char *name, const char *value)
{
	for (int i = 0; i < fake_job.option_count; i++) {
		const struct spank_option *option = &fake_job.options[i];
		if (strcmp(option->name, name) == 0)
			return option->cb(option->val, value, fake_job.context == S_CTX_REMOTE);
	}
	return -1;
}

static void put(const char *format, va_list args)
{
	size_t used = strlen(fake_job.log);

	vsnprintf(fake_job.log + used, sizeof fake_job.log - used, format, args);
	used = strlen(fake_job.log);
	snprintf(fake_job.log + used, sizeof fake_job.log - used, "\n");
}

void slurm_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put(format, args);
	va_end(args);
}

void slurm_info(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put(format, args);
	va_end(args);
}

void fake_command_line(const char *words, size_t size)
{
	static size_t room; /* the bytes that the words of argv occupied when the process started */

	if (room == 0)
		room = strlen(program_invocation_name) + 1;
	CHECK(size <= room);
	memcpy(program_invocation_name, words, size);
}
