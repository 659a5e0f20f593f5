#include "exec_check.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "io.h"

/* The kernel follows as many symlinks. */
enum { MOST_LINKS = 40 };
/* The kernel reads as much of a script; the loader's name is near the beginning of an ELF file. */
enum { HEAD = 4096 };

/* Replace a symlink's path with its target; 0 if it is not a symlink, or if the path
 * is too long for the buffer. */
static int follow(char path[CE_LOADER_SIZE])
{
	char target[CE_LOADER_SIZE];
	ssize_t length = readlink(path, target, sizeof target - 1);

	if (length <= 0 || length == sizeof target - 1)
		return 0;
	target[length] = '\0';
	const char *slash = strrchr(path, '/');
	size_t directory = target[0] != '/' && slash != NULL ? (size_t)(slash + 1 - path) : 0;
	if (directory + (size_t)length >= CE_LOADER_SIZE)
		return 0;
	memcpy(path + directory, target, (size_t)length + 1);
	return 1;
}

int ce_leads_nowhere(const char *path, char end[CE_LOADER_SIZE])
{
	int links = 0;

	if (strlen(path) >= CE_LOADER_SIZE)
		return 0;
	strcpy(end, path);
	while (links < MOST_LINKS && follow(end))
		links++;
	return links > 0 && links < MOST_LINKS && faccessat(AT_FDCWD, path, F_OK, AT_EACCESS) < 0;
}

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
	char head[HEAD + 1] = "", name[CE_LOADER_SIZE], end[CE_LOADER_SIZE];
	size_t length = 0;
	struct statfs place;
	/* opening a FIFO would block */
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t size = fd >= 0 ? read(fd, head, HEAD) : -1;

	/* a file that is executable but not readable is fine; a damaged image or disk is not */
	if (size < 0 && errno == EIO) {
		snprintf(why, CE_WHY_SIZE, "it cannot be read: %s", strerror(EIO));
		return fstatfs(fd, &place) == 0 && place.f_type == OVERLAYFS_SUPER_MAGIC ? CE_DAMAGED : 1;
	}
	if (size >= 2 && head[0] == '#' && head[1] == '!')
		length = script(head, (size_t)size, name);
	else if (size >= (ssize_t)sizeof(Elf64_Ehdr) && memcmp(head, ELFMAG, SELFMAG) == 0)
		length = elf(head, (size_t)size, name);
	if (length == 0)
		return 0;
	name[length] = '\0';
	if (ce_leads_nowhere(name, end))
		snprintf(why, CE_WHY_SIZE, "it needs '%s', a link to '%s', which is not there", name, end);
	else
		snprintf(why, CE_WHY_SIZE, "it needs '%s', which is not there", name);
	return faccessat(AT_FDCWD, name, F_OK, AT_EACCESS) < 0;
}
