/* Structures in a pipe, by which ce-image tells the guard of the kernel's requests, so that the next mount of
 * the image can be read ahead. */
#pragma once

#include <stdint.h>

/* The kernel asks for as much of a file at most. */
#define CE_READ_PIECE ((uint64_t)128 << 10)
/* In the root directory these names stand for regular files, by the hexadecimal node: the guard does not
 * know the names of all. No listing has them. */
#define CE_READ_NAME ".ce-node-"
/* The root's node, as in the kernel's requests. */
#define CE_READ_ROOT 1

/* A name that was looked up in the directory `node`; without a name, a piece of the file `node` that was
 * read, or that directory, which was listed. */
struct ce_read {
	uint64_t node;
	uint64_t found; /* the node that has the name; 0: none */
	uint32_t piece;
	char name[76]; /* the rest is zeros; longer names are not told */
};
