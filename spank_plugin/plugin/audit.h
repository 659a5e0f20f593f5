/*
 * An audit record for each step and node that asks for a container, written where only root can write: one
 * line with the user, the job and step, and the hash and size of the plan as it arrived. Root parses nothing
 * of the plan. Which image it is, the line has as the user's side says it; a copy of the plan (ce plan --json) can be
 * compared with the hash.
 */
#ifndef CE_AUDIT_H
#define CE_AUDIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "sha256.h"

enum { CE_AUDIT_CLAIM = 257 };

struct ce_audit {
	uint32_t job, step;
	uid_t uid;
	size_t size; /* bytes of the plan */
	char hash[CE_SHA256_TEXT];
	char claim[CE_AUDIT_CLAIM];
	int is_due; /* set until the line is written */
};

/* Record the contents of the line. In slurmstepd. */
void ce_audit_note(struct ce_audit *audit, uint32_t job, uint32_t step, uid_t uid, const char *plan);

/* Record what the user's side says of the image, NULL for nothing: bytes that are not those of digests and usual paths
 * become '?', what is too long loses its beginning. */
void ce_audit_note_claim(struct ce_audit *audit, const char *image);

/* Write the line, once, to `place`: "syslog", a root-owned file that is created if necessary, or NULL for
 * nowhere. In slurmstepd, as root with the effective id of root. */
int ce_audit_write(struct ce_audit *audit, const char *place, struct ce_error *err);

#endif
