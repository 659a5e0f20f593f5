/*
 * One line for each step and node that asks for a container, where only root can write: who, which job and step, and
 * the hash and size of the plan as it arrived. Root parses nothing of the plan: what it says of images is the user's word,
 * and whoever has the plan (ce plan --json) can tell by the hash that it was that one.
 */
#ifndef CE_AUDIT_H
#define CE_AUDIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "sha256.h"

struct ce_audit {
	uint32_t job, step;
	uid_t uid;
	size_t size; /* bytes of the plan */
	char hash[CE_SHA256_TEXT];
	int is_due; /* until the line is written */
};

/* In slurmstepd: notes what the line will say. */
void ce_audit_note(struct ce_audit *audit, uint32_t job, uint32_t step, uid_t uid, const char *plan);

/* In slurmstepd, as root with the effective id of root: writes the line, once, to `place`: "syslog", or a file of root's
 * that is made if need be. NULL: nowhere. */
int ce_audit_write(struct ce_audit *audit, const char *place, struct ce_error *err);

#endif
