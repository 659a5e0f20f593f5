/* The SHA-256 of bytes (FIPS 180-4), for the audit: root only copies and hashes a user's bytes. */
#ifndef CE_SHA256_H
#define CE_SHA256_H

#include <stddef.h>

enum { CE_SHA256_TEXT = 65 };

/* Write the hash as 64 hexadecimal digits and a NUL. */
void ce_sha256(const void *data, size_t size, char text[CE_SHA256_TEXT]);

#endif
