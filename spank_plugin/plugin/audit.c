#define _GNU_SOURCE
#include "audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "common/io.h"

void ce_audit_note(struct ce_audit *audit, uint32_t job, uint32_t step, uid_t uid, const char *plan)
{
	audit->job = job;
	audit->step = step;
	audit->uid = uid;
	audit->size = strlen(plan);
	ce_sha256(plan, audit->size, audit->hash);
	audit->is_due = 1;
}

void ce_audit_note_claim(struct ce_audit *audit, const char *image)
{
	static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/:._+@%-";
	size_t length = image != NULL ? strlen(image) : 0, most = sizeof audit->claim - 1;
	const char *from = length > most ? image + length - most : image;

	memset(audit->claim, 0, sizeof audit->claim);
	for (size_t i = 0; length > 0 && from[i] != '\0'; i++)
		audit->claim[i] = strchr(usual, from[i]) != NULL ? from[i] : '?';
}

/* Append the line to the file; refuse anything that a user could have put there: a symlink, a FIFO, on which
 * root would block, a file owned by the user. The rule for files must match
 * container_engine/base/ownership.py. */
static int append(const char *path, const char *line, struct ce_error *err)
{
	struct stat st;
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	CE_AUTO_FD file = open(path, flags, 0600);

	if (file < 0 || fstat(file, &st) < 0)
		return ce_fail(err, "audit=%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return ce_fail(err, "audit=%s: not a file that only root can write to", path);
	if (write(file, line, strlen(line)) != (ssize_t)strlen(line))
		return ce_fail(err, "audit=%s: cannot write the line: %s", path, strerror(errno));
	return 0;
}

int ce_audit_write(struct ce_audit *audit, const char *place, struct ce_error *err)
{
	char what[256 + CE_AUDIT_CLAIM], line[512 + CE_AUDIT_CLAIM], host[65] = "", when[32] = "";
	time_t now = time(NULL);
	struct tm utc;

	if (place == NULL || !audit->is_due)
		return 0;
	audit->is_due = 0;
	snprintf(what, sizeof what, "job=%u step=%u uid=%u plan-sha256=%s plan-bytes=%zu user-says-image=%s",
		 audit->job, audit->step, (unsigned)audit->uid, audit->hash, audit->size,
		 audit->claim[0] != '\0' ? audit->claim : "-");
	if (strcmp(place, "syslog") == 0) {
		syslog(LOG_AUTHPRIV | LOG_INFO, "container_engine: %s", what);
		return 0;
	}
	if (gethostname(host, sizeof host - 1) < 0)
		host[0] = '\0';
	if (gmtime_r(&now, &utc) != NULL)
		strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
	snprintf(line, sizeof line, "%s host=%s %s\n", when, host, what);
	return append(place, line, err);
}
