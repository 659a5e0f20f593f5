/* Whether the kernel will find what a program needs to be executed: its interpreter, its loader. */
#ifndef CE_LOADER_H
#define CE_LOADER_H

#include <stddef.h>

enum { CE_LOADER_SIZE = 256 };

/* The loader of an ELF file, or the interpreter of a script, if nothing is there by this name: execve
 * would only say that the program itself is not. 1 and its path in `name`; 0 for a program that has what
 * it needs, and for one of which nothing can be told. */
int ce_lacks_loader(const char *path, char name[CE_LOADER_SIZE]);

#endif
