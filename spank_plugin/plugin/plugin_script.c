#define _GNU_SOURCE
#include "plugin_script.h"

#include <fcntl.h>
#include <pwd.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/io.h"
#include "common/say.h"
#include "session_end.h"

enum { LIMIT = 1 << 20, ENTRY_SIZE = 64 * 1024 };

char ce_script_note[PATH_MAX];

void ce_note_path(uid_t uid, uint32_t job, char path[PATH_MAX])
{
	CE_AUTO_FREE char *buffer = malloc(ENTRY_SIZE);
	struct passwd entry, *found = NULL;

	path[0] = '\0';
	/* not $HOME, which the script may change */
	if (buffer == NULL || getpwuid_r(uid, &entry, buffer, ENTRY_SIZE, &found) != 0 || found == NULL ||
	    found->pw_dir == NULL || found->pw_dir[0] != '/')
		return;
	int n = snprintf(path, PATH_MAX, "%s/.local/state/container-engine/unused/%u", found->pw_dir,
			 (unsigned)job);
	if (n < 0 || n >= PATH_MAX)
		path[0] = '\0';
}

void ce_note_make(const char *path)
{
	(void)ce_make_parents(path, 0700);
	CE_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int ce_note_take(const char *path)
{
	return path[0] != '\0' && unlink(path) == 0;
}

int ce_script_is_batch(spank_t spank)
{
	uint32_t step = 0;

	return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS && step == SLURM_BATCH_SCRIPT;
}

void ce_script_prepare(spank_t spank, const char *environment)
{
	uint32_t job = 0;
	uid_t uid;

	ce_script_note[0] = '\0';
	if (environment != NULL && ce_script_is_batch(spank) &&
	    spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS)
		ce_note_path(uid, job, ce_script_note);
}

char *ce_script_read(spank_t spank)
{
	int argc = 0;
	char **argv = NULL;

	return spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0
		       ? ce_read_path(AT_FDCWD, argv[0], 0, LIMIT, NULL)
		       : NULL;
}

static int has_option(spank_t spank)
{
	CE_AUTO_FREE char *text = ce_script_read(spank);

	return text != NULL &&
	       (strstr(text, "--environment") != NULL || strstr(text, "--container-") != NULL);
}

void ce_script_prepare_holder(spank_t spank, const char *environment)
{
	uid_t uid;
	gid_t gid;

	if (ce_script_is_batch(spank) && (environment != NULL || has_option(spank)) &&
	    spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_JOB_GID, &gid) == ESPANK_SUCCESS)
		ce_holder_prepare(uid, gid);
}

static void warn_if_unused(const void *environment)
{
	char line[512];

	if (!ce_note_take(ce_script_note))
		return;
	snprintf(line, sizeof line,
		 "no srun of this job used '%.256s': all of it ran on the host (write srun before the "
		 "commands to run inside)",
		 (const char *)environment);
	ce_say(NULL, "warning", line);
}

void ce_script_end(spank_t spank, const char *environment)
{
	uid_t uid;
	gid_t gid;

	if (ce_script_note[0] != '\0' && environment != NULL &&
	    spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS &&
	    spank_get_item(spank, S_JOB_GID, &gid) == ESPANK_SUCCESS)
		ce_end_as_user(uid, gid, warn_if_unused, environment);
	ce_script_note[0] = '\0';
}
