/*
 * An audit record for each step and node that asks for a container, written where only root can write: one
 * line with the user, the job and step, and the hash and size of the plan as it arrived, with which a copy of
 * the plan (ce plan --json) can be compared. Root parses nothing of the plan, so the line has the image's
 * name only as the user's side states it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

enum { CE_AUDIT_CLAIM = 257, CE_SHA256_TEXT = 65 };

struct ce_audit {
	uint32_t job, step;
	uid_t uid;
	size_t size; /* bytes of the plan */
	char hash[CE_SHA256_TEXT];
	char claim[CE_AUDIT_CLAIM];
	int is_due; /* set until the line is written */
};

/* Record the contents of the line, which is due from then on. In slurmstepd. */
void ce_audit_note(struct ce_audit *audit, uint32_t job, uint32_t step, uid_t uid, const char *plan);

/* Record which image the user's side states, NULL for none. Characters that digests and usual paths do not
 * have become '?', and a text that is too long loses its beginning. */
void ce_audit_note_claim(struct ce_audit *audit, const char *image);

/* Write the line, once, to `place`: "syslog", a root-owned file that is created if necessary, or NULL for
 * nowhere. Return 0, or -1 with the error. In slurmstepd, as root with the effective id of root. */
int ce_audit_write(struct ce_audit *audit, const char *place, struct ce_error *err);

/* Write the SHA-256 of bytes as 64 hexadecimal digits and a NUL. */
void ce_sha256(const void *data, size_t size, char text[CE_SHA256_TEXT]);
