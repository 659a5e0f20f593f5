/* The first bytes of a program's file, and what the kernel needs to execute it. */
#pragma once

#include <elf.h>
#include <sys/types.h>

/* More than the kernel reads of a script, and an ELF file usually has the name of its loader within them. */
enum { CE_HEAD = 4096, CE_LOADER_SIZE = 256 };

struct ce_head {
	ssize_t size; /* -1 with errno if the file cannot be read */
	char bytes[CE_HEAD + 1];
};

/* Read the beginning of the file. Return its descriptor, which the caller closes, or -1. A FIFO is not waited
 * for. */
int ce_read_head(const char *path, struct ce_head *head);

int ce_is_script(const struct ce_head *head);

/* Return 1 and the path of the interpreter of a script, or of the loader of an ELF file, in `name`; 0 if
 * there is none, or if it cannot be determined. */
int ce_needed_program(const struct ce_head *head, char name[CE_LOADER_SIZE]);

/* Return the header of the program or plugin that contains this code. Its machine is the node's. */
const Elf64_Ehdr *ce_own_head(void);

/* Return 1 and the header in `file` if this is an ELF file for another processor than the node's, else 0. */
int ce_is_of_other_machine(const struct ce_head *head, Elf64_Ehdr *file);

/* Return whether the kernel may be unable to execute the file: the cheap question before ce_cannot_start
 * (exec_check.h), which never has a reason where the answer is no. */
int ce_may_not_start(const char *path);
