#include "loader.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "io.h"

/* The kernel reads as much of a script; a loader's name stands near the beginning of an ELF file. */
enum { HEAD = 4096 };

static size_t script(const char *head, size_t size, char name[CE_LOADER_SIZE])
{
	size_t begin = 2 + strspn(head + 2, " \t");
	size_t length = strcspn(head + begin, " \t\r\n");

	if (begin + length >= size || length == 0 || length >= CE_LOADER_SIZE || head[begin] != '/')
		return 0;
	memcpy(name, head + begin, length);
	return length;
}

static size_t elf(const char *head, size_t size, char name[CE_LOADER_SIZE])
{
	Elf64_Ehdr file;
	Elf64_Phdr part;

	memcpy(&file, head, sizeof file);
	if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_phentsize != sizeof part)
		return 0;
	for (size_t i = 0; i < file.e_phnum; i++) {
		size_t place = (size_t)file.e_phoff + i * sizeof part;
		if (file.e_phoff > size || place + sizeof part > size)
			return 0;
		memcpy(&part, head + place, sizeof part);
		if (part.p_type != PT_INTERP)
			continue;
		if (part.p_filesz < 2 || part.p_filesz > CE_LOADER_SIZE || part.p_offset > size ||
		    part.p_offset + part.p_filesz > size)
			return 0;
		memcpy(name, head + part.p_offset, part.p_filesz - 1);
		return part.p_filesz - 1;
	}
	return 0;
}

int ce_cannot_start(const char *path, char why[CE_WHY_SIZE])
{
	char head[HEAD + 1] = "", name[CE_LOADER_SIZE];
	size_t length = 0;
	/* a FIFO would be waited for */
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t size = fd >= 0 ? read(fd, head, HEAD) : -1;

	/* what may be executed and not read is no fault; a damaged image or disk is */
	if (size < 0 && errno == EIO) {
		snprintf(why, CE_WHY_SIZE, "it cannot be read: %s", strerror(EIO));
		return 1;
	}
	if (size >= 2 && head[0] == '#' && head[1] == '!')
		length = script(head, (size_t)size, name);
	else if (size >= (ssize_t)sizeof(Elf64_Ehdr) && memcmp(head, ELFMAG, SELFMAG) == 0)
		length = elf(head, (size_t)size, name);
	if (length == 0)
		return 0;
	name[length] = '\0';
	snprintf(why, CE_WHY_SIZE, "it needs '%s', which is not there", name);
	return faccessat(AT_FDCWD, name, F_OK, AT_EACCESS) < 0;
}
