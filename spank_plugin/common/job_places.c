#define _GNU_SOURCE
#include "job_places.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io.h"

enum { MOST_RECORDS = 4 << 20 };

const char *const ce_naming_variables[] = {
	"PYTHONHOME",	"JAVA_HOME",	"R_HOME",	"PERL5LIB",	"RUBYLIB",	  "NODE_PATH",
	"TCL_LIBRARY",	"GCONV_PATH",	"LOCPATH",	"TERMINFO",	"SSL_CERT_FILE",  "SSL_CERT_DIR",
	"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "OPENSSL_CONF", "OPAL_PREFIX", "I_MPI_ROOT", "CUDA_HOME",
	"GDAL_DATA",	"PROJ_DATA",	"PROJ_LIB",	"SHELL",	NULL
};

/* Return whether a record sets or removes the variable. If the records cannot be read, assume that one
 * does. */
static int is_decided(int records_fd, const char *variable)
{
	size_t size = 0, length = strlen(variable);
	CE_AUTO_FREE char *records = ce_read_file_at(records_fd, MOST_RECORDS, &size);

	for (const char *next = records; records != NULL && next < records + size; next += strlen(next) + 1) {
		if (strncmp(next, variable, length) == 0 && (next[length] == '=' || next[length] == '\0'))
			return 1;
	}
	return records == NULL;
}

int ce_is_mounted(const char *directory)
{
	struct stat root, st;

	return stat("/", &root) == 0 && stat(directory, &st) == 0 && st.st_dev != root.st_dev;
}

static int is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Return the number of absolute paths in the value, or -1 if `is` returns true for one of them. */
static int count_unless(const char *value, int (*is)(const char *path))
{
	char path[PATH_MAX];
	int count = 0;

	while (*value != '\0') {
		size_t length = strcspn(value, ":");
		if (value[0] == '/' && length < sizeof path) {
			count++;
			snprintf(path, sizeof path, "%.*s", (int)length, value);
			if (is(path))
				return -1;
		}
		value += length + (value[length] == ':');
	}
	return count;
}

const char *ce_search_path_of_job(int records_fd, const struct ce_variables *variables, const char *variable)
{
	const char *value = variables->get(variables->context, variable);

	return value != NULL && count_unless(value, ce_is_mounted) < 0 && !is_decided(records_fd, variable) ?
		       value : NULL;
}

const char *ce_missing_place(int records_fd, const struct ce_variables *variables, const char *variable)
{
	const char *value = variables->get(variables->context, variable);

	if (value == NULL || count_unless(value, is_there) <= 0 || is_decided(records_fd, variable) ||
	    (strcmp(variable, "SHELL") == 0 && !isatty(STDIN_FILENO)))
		return NULL;
	return value;
}

int ce_may_lack_places(int records_fd, const struct ce_variables *variables)
{
	const char *const *name = ce_naming_variables;

	while (*name != NULL && ce_missing_place(records_fd, variables, *name) == NULL)
		name++;
	return *name != NULL || ce_search_path_of_job(records_fd, variables, "LD_LIBRARY_PATH") != NULL ||
	       ce_search_path_of_job(records_fd, variables, "PYTHONPATH") != NULL;
}

static int is_set_to_other(const struct ce_variables *variables, const char *name, const char *value)
{
	const char *found = variables->get(variables->context, name);

	return found != NULL && strcmp(found, value) != 0;
}

static int may_share_memory(const struct ce_variables *variables)
{
	return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/kfd", F_OK) == 0 ||
	       (is_set_to_other(variables, "SLURM_STEP_NUM_TASKS", "1") &&
		is_set_to_other(variables, "SLURM_MPI_TYPE", "none"));
}

int ce_lacks_shared_memory(const struct ce_variables *variables, unsigned long long *left,
			   unsigned long long *all)
{
	struct statvfs found;

	/* without a limit it has no blocks */
	if (!may_share_memory(variables) || statvfs(CE_SHARED_MEMORY, &found) < 0 || found.f_blocks == 0)
		return 0;
	*left = found.f_bavail * found.f_frsize >> 20;
	*all = found.f_blocks * found.f_frsize >> 20;
	return *left < CE_SHARED_MEMORY_NEEDED;
}
