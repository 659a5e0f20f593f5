#define _GNU_SOURCE
#include "join.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec_check.h"
#include "fakeroot.h"
#include "help.h"
#include "hints.h"
#include "io.h"
#include "pid_namespace.h"

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* A larger environment cannot be given to execve on any Linux (a quarter of the stack limit, at most 6 MiB),
 * so a larger record file is a bug of ours or comes from a broken peer. */
enum { MAX_RECORDS = 16 * 1024 * 1024 };

void ce_container_close(struct ce_container *container)
{
	ce_close_fd(&container->user_ns);
	for (size_t i = 0; i < CE_MAX_UNSHARED; i++)
		ce_close_fd(&container->unshared[i]);
	ce_close_fd(&container->mount_ns);
	ce_close_fd(&container->environment);
	ce_close_fd(&container->guard);
	ce_close_fd(&container->launcher);
	ce_close_fd(&container->attended);
	ce_close_fd(&container->trace);
	ce_close_fd(&container->marks);
	ce_close_fd(&container->tasks);
	ce_close_fd(&container->profile);
	free(container->workdir);
	container->workdir = NULL;
	free(container->notices);
	container->notices = NULL;
	free(container->entrypoint_output);
	container->entrypoint_output = NULL;
}

int ce_join(const struct ce_container *container, struct ce_error *err)
{
	int has_pids = 0;

	/* The user namespace comes first: it gives the capabilities over itself that joining the other
	 * namespaces, which it owns, requires. execve removes them again, because the user is not root in
	 * it. */
	if (setns(container->user_ns, CLONE_NEWUSER) < 0)
		return ce_fail(err, "cannot enter the container's user namespace: %s",
			       strerror(errno));
	for (size_t i = 0; i < CE_MAX_UNSHARED; i++) {
		if (container->unshared[i] >= 0 && setns(container->unshared[i], 0) < 0)
			return ce_fail(err, "cannot enter a namespace of the container's own: %s",
				       strerror(errno));
		has_pids |= container->unshared[i] >= 0 && ce_is_pid_namespace(container->unshared[i]);
	}
	if (setns(container->mount_ns, CLONE_NEWNS) < 0)
		return ce_fail(err, "cannot enter the container's mount namespace: %s",
			       strerror(errno));
	if (chdir(container->workdir) < 0)
		return ce_fail_below(err, CE_HELP_WORKDIR_MISSING,
				     "workdir '%s': cannot change to it in the container: %s",
				     container->workdir, strerror(errno));
	if (!container->may_gain && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return ce_fail(err, "cannot set no_new_privs: %s", strerror(errno));
	/* root in the container is still the user, who cannot change owners or become another user */
	if (geteuid() == 0 && ce_fakeroot() < 0)
		return ce_fail(err, "cannot install the filter for root in the container: %s",
			       strerror(errno));
	return has_pids ? ce_enter_pids(err) : 0;
}

static int apply_record(char *record, const struct ce_variables *variables, struct ce_error *err)
{
	int is_copy = record[0] == '=';
	char *name = record + is_copy;
	char *equals = strchr(name, '=');
	const char *value = equals != NULL ? equals + 1 : NULL;

	if (equals != NULL)
		*equals = '\0';
	if (is_copy) {
		value = value != NULL ? variables->get(variables->context, value) : NULL;
		if (value == NULL)
			return 0;
	}
	if (variables->set(variables->context, name, value) < 0)
		return ce_fail(err, "cannot set the environment variable '%s'", name);
	return 0;
}

/* Give the task the usual PATH if it has none: without it Slurm takes a command's name for a path, and shells
 * each search places of their own. */
static int keep_path(const struct ce_variables *variables, struct ce_error *err)
{
	if (variables->get(variables->context, "PATH") != NULL ||
	    variables->set(variables->context, "PATH", default_path) == 0)
		return 0;
	return ce_fail(err, "cannot set the environment variable 'PATH'");
}

int ce_apply_environment(int records_fd, const struct ce_variables *variables, struct ce_error *err)
{
	size_t size = 0;
	CE_AUTO_FREE char *records = ce_read_file_at(records_fd, MAX_RECORDS, &size);

	if (records == NULL)
		return ce_fail(err, "cannot read the container's environment: %s", strerror(errno));
	for (char *next = records; next < records + size;) {
		size_t length = strlen(next);
		if (apply_record(next, variables, err) < 0)
			return -1;
		next += length + 1;
	}
	return keep_path(variables, err);
}

/* Return 0 if the file can be executed, EACCES if it exists but the user may not execute it, else the errno
 * of stat. */
static int try_command(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno;
	if (S_ISDIR(st.st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
		return EACCES;
	return 0;
}

/* Return whether the errno means that the file does not exist. Others do not tell: ENOTCONN and EIO, for
 * instance, mean that the image cannot be read. */
static int is_absent(int reason)
{
	return reason == ENOENT || reason == ENOTDIR || reason == ELOOP;
}

/* Report a file that the user may not execute, or that cannot be examined. */
static int refuse_file(const char *command, int reason, struct ce_error *err)
{
	const char *why = strerror(reason);
	struct stat st;

	err->below = CE_HELP_COMMAND_NOT_EXECUTABLE;
	/* without a slash it was found somewhere on PATH */
	if (reason == EACCES && strchr(command, '/') != NULL && stat(command, &st) == 0) {
		if (S_ISDIR(st.st_mode)) {
			why = "it is a directory";
		} else if (S_ISREG(st.st_mode) && (st.st_mode & 0111) == 0) {
			why = "it has no permission to be executed";
			err->below = ce_no_permission_help;
		}
	}
	return ce_fail_code(err, CE_EXIT_NOT_EXECUTABLE, "%s: cannot be executed in the container: %s",
			    command, why);
}

/* Report why `command` cannot be run. `link` is a path at which there may be a dangling symlink, NULL for
 * none. */
static int refuse(const char *command, int reason, const char *link, struct ce_error *err)
{
	char end[CE_LOADER_SIZE];

	if (!is_absent(reason))
		return refuse_file(command, reason, err);
	err->below = CE_HELP_COMMAND_NOT_FOUND;
	if (link != NULL && ce_leads_nowhere(link, end))
		return ce_fail_code(err, CE_EXIT_NOT_FOUND,
				    "%s: command not found in the container: '%s' is a link to '%s', "
				    "which does not exist",
				    command, link, end);
	err->below = ce_not_found_help(command);
	return ce_fail_code(err, CE_EXIT_NOT_FOUND, "%s: command not found in the container",
			    command);
}

/* Return 0 for a dangling symlink; otherwise like try_command. */
static int try_link(const char *path)
{
	char end[CE_LOADER_SIZE];

	return ce_leads_nowhere(path, end) ? 0 : ENOENT;
}

/* Return 0 and the first file of this name for which `try_file` returns 0 in `found`, on the heap; 1 and the
 * reason if there is none; -1 when out of memory. */
static int search_path(const char *path, const char *command, int (*try_file)(const char *),
		       char **found, int *reason)
{
	*reason = ENOENT;
	for (const char *dir = path; dir != NULL;) {
		const char *colon = strchr(dir, ':');
		size_t length = colon != NULL ? (size_t)(colon - dir) : strlen(dir);
		CE_AUTO_FREE char *candidate = NULL;

		/* an empty element of PATH is the current directory */
		if (asprintf(&candidate, "%.*s%s%s", (int)length, dir, length > 0 ? "/" : "./",
			     command) < 0) {
			candidate = NULL;
			return -1;
		}
		int rc = try_file(candidate);
		if (rc == 0) {
			*found = candidate;
			candidate = NULL;
			return 0;
		}
		if (!is_absent(rc))
			*reason = rc;
		dir = colon != NULL ? colon + 1 : NULL;
	}
	return 1;
}

/* Return 0 if the kernel can execute *found, else -1 with the error, and free *found. Slurm would print a
 * message of its own, or report for a missing loader that the program does not exist, and end the task with
 * the error number as exit code. */
static int check_start(const char *command, char **found, struct ce_error *err)
{
	char why[CE_WHY_SIZE];

	int rc = ce_cannot_start(*found, why);
	if (rc == 0)
		return 0;
	free(*found);
	*found = NULL;
	err->below = rc == CE_DAMAGED	     ? CE_HELP_IMAGE_DAMAGED :
		     rc == CE_FOREIGN	     ? CE_HELP_IMAGE_ARCHITECTURE :
		     rc == CE_RETURNS	     ? ce_returns_help :
		     rc == CE_NO_INTERPRETER ? ce_interpreter_help :
		     rc == CE_OUT_OF_REACH   ? ce_out_of_reach_help :
					       CE_HELP_COMMAND_NOT_EXECUTABLE;
	return ce_fail_code(err, CE_EXIT_NOT_EXECUTABLE, "%s: cannot be executed in the container: %s",
			    command, why);
}

int ce_find_command(const char *path, const char *command, char **found, struct ce_error *err)
{
	int reason, ignored;

	*found = NULL;
	if (command[0] == '\0')
		return refuse("''", ENOENT, NULL, err);
	if (strchr(command, '/') != NULL) {
		reason = try_command(command);
		if (reason != 0)
			return refuse(command, reason, command, err);
		*found = strdup(command);
		return *found != NULL ? check_start(command, found, err) : ce_fail(err, "out of memory");
	}
	path = path != NULL ? path : default_path;
	int rc = search_path(path, command, try_command, found, &reason);
	if (rc == 0)
		return check_start(command, found, err);
	CE_AUTO_FREE char *link = NULL;
	if (rc < 0 || search_path(path, command, try_link, &link, &ignored) < 0)
		return ce_fail(err, "out of memory");
	return refuse(command, reason, link, err);
}
