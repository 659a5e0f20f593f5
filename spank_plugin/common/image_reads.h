/* The words by which ce-image tells the guard what the kernel reads, so that the next mount of the image can
 * be read ahead: 64 bits in a pipe, an inode reference above the number of a piece of the file. */
#pragma once

#include <stdint.h>

/* The kernel asks for as much at most. */
#define CE_READ_PIECE ((uint64_t)128 << 10)
#define CE_READ_BITS 16
#define CE_READ_MOST ((uint64_t)1 << CE_READ_BITS)
/* In the root directory these names stand for regular files, by the hexadecimal inode reference: the guard
 * knows no paths. No listing has them. */
#define CE_READ_NAME ".ce-inode-"
