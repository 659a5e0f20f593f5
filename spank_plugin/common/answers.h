/*
 * Recorded answers: with one, a program in C takes what Python has found out before. An answer is a file of
 * the user's alone (container_engine/base/answers.py, which says what its witnesses are).
 *
 * Its fields (fields.h): the request with its header (number of bytes, and the bytes), number of witnesses
 * and of each the question and the state that was found, the result (number of bytes, and the bytes), and the
 * word "end". The header of a request is four fields: version of the engine, its prefix, boot and host name
 * of the node or nothing, and the ids of the user, the group and the other groups.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "fields.h"

/* They must match container_engine/base/answers.py. */
enum { CE_ANSWER_SLOTS = 4, CE_ANSWER_LONGEST = 4194304 };

/* A request for an answer of the calling process's user. */
struct ce_query {
	const char *prefix;
	int is_everywhere; /* whether the answer may come from another host, or from before a reboot */
	const char *words; /* what is asked for; may include NULs */
	size_t size;
	/* Return the value of a variable of `context`, NULL if it is unset. */
	const char *(*variable)(const void *context, const char *name);
	const void *context;
};

/* An answer that is right. */
struct ce_answer {
	char *text;		 /* the file, on the heap, which the caller frees */
	struct ce_fields result; /* points into `text` */
};

/* Find the answer to a request in a directory, which the caller has found to be the user's alone. Return 0,
 * or -1 if there is none or anything about it is doubtful: Python finds out again, and explains. */
int ce_answer_find(int directory, const struct ce_query *request, struct ce_answer *answer);

/* Return zlib's CRC-32 of the data. `before` is the CRC of the data before it, 0 at the beginning. */
uint32_t ce_crc(uint32_t before, const void *data, size_t size);

/* Return the request with its header, on the heap, NULL on failure. */
char *ce_answer_request(const struct ce_query *request, size_t *size);

/* Check that answer->text, of this size and with a NUL after it, is an answer to a request, which `whole` is
 * with its header, and that all witnesses are true. Return 0 with the result, or -1. */
int ce_answer_check(const struct ce_query *request, const char *whole, size_t whole_size, size_t size,
		    struct ce_answer *answer);

/* The names of the user on this node, where others than /etc/passwd and /etc/group give them. */

/* Return whether ce-user, installed below `prefix`, prints this text (programs/user.c) for the calling
 * process's user; 0 if it fails. Waits for it as long as the node's sources of users take. */
int ce_user_has_names(const char *prefix, const char *text, size_t size);
