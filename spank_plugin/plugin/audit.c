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

/* ---- SHA-256 (FIPS 180-4) ---------------------------------------------------------------------- */

enum { BLOCK = 64, ROUNDS = 64, WORDS = 8, LENGTH_AT = 56 };

static const uint32_t constants[ROUNDS] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, unsigned by)
{
	return word >> by | word << (32 - by);
}

static void expand(const unsigned char *block, uint32_t schedule[ROUNDS])
{
	for (int i = 0; i < 16; i++)
		schedule[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
			      (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < ROUNDS; i++) {
		uint32_t a = schedule[i - 15], b = schedule[i - 2];
		schedule[i] = schedule[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + schedule[i - 7] +
			      (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
	}
}

static void add_block(uint32_t state[WORDS], const unsigned char *block)
{
	uint32_t schedule[ROUNDS], v[WORDS];

	expand(block, schedule);
	memcpy(v, state, sizeof v);
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t one = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
			       ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants[i] + schedule[i];
		uint32_t two = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
			       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
		memmove(&v[1], &v[0], (WORDS - 1) * sizeof v[0]);
		v[4] += one;
		v[0] = one + two;
	}
	for (int i = 0; i < WORDS; i++)
		state[i] += v[i];
}

void ce_sha256(const void *data, size_t size, char text[CE_SHA256_TEXT])
{
	uint32_t state[WORDS] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
				  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
	unsigned char last[2 * BLOCK] = { 0 };
	const unsigned char *bytes = data;
	size_t whole = size / BLOCK * BLOCK, rest = size - whole;
	size_t end = rest < LENGTH_AT ? BLOCK : 2 * BLOCK;

	for (size_t i = 0; i < whole; i += BLOCK)
		add_block(state, bytes + i);
	if (rest > 0)
		memcpy(last, bytes + whole, rest);
	last[rest] = 0x80;
	for (size_t i = 0; i < 8; i++)
		last[end - 1 - i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
	for (size_t i = 0; i < end; i += BLOCK)
		add_block(state, last + i);
	for (int i = 0; i < WORDS; i++)
		snprintf(text + 8 * i, CE_SHA256_TEXT - 8 * (size_t)i, "%08x", state[i]);
}

/* ---- the line ---------------------------------------------------------------------------------- */

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
 * container_engine/base/files.py. */
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
