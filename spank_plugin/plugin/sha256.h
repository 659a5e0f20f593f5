/* The SHA-256 of bytes (FIPS 180-4), for the audit: what root does with a user's bytes is to copy and to hash them. */
#ifndef CE_SHA256_H
#define CE_SHA256_H

#include <stddef.h>

enum { CE_SHA256_TEXT = 65 };

/* As 64 hexadecimal digits and a NUL. */
void ce_sha256(const void *data, size_t size, char text[CE_SHA256_TEXT]);

#endif
