#define _GNU_SOURCE
#include "program_head.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io.h"

/* defined by the linker */
extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));

int ce_read_head(const char *path, struct ce_head *head)
{
	/* opening a FIFO would block */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	memset(head->bytes, 0, sizeof head->bytes);
	head->size = fd >= 0 ? read(fd, head->bytes, CE_HEAD) : -1;
	return fd;
}

int ce_is_script(const struct ce_head *head)
{
	return head->size >= 2 && head->bytes[0] == '#' && head->bytes[1] == '!';
}

static int is_elf(const struct ce_head *head)
{
	return head->size >= (ssize_t)sizeof(Elf64_Ehdr) && memcmp(head->bytes, ELFMAG, SELFMAG) == 0 &&
	       head->bytes[EI_CLASS] == ELFCLASS64;
}

static int name_interpreter(const struct ce_head *head, char name[CE_LOADER_SIZE])
{
	size_t begin = 2 + strspn(head->bytes + 2, " \t");
	size_t length = strcspn(head->bytes + begin, " \t\r\n");

	if (begin + length >= (size_t)head->size || length == 0 || length >= CE_LOADER_SIZE ||
	    head->bytes[begin] != '/')
		return 0;
	memcpy(name, head->bytes + begin, length);
	name[length] = '\0';
	return 1;
}

static int name_loader(const struct ce_head *head, char name[CE_LOADER_SIZE])
{
	size_t size = (size_t)head->size;
	Elf64_Ehdr file;
	Elf64_Phdr part;

	memcpy(&file, head->bytes, sizeof file);
	if (file.e_phentsize != sizeof part)
		return 0;
	for (size_t i = 0; i < file.e_phnum; i++) {
		size_t place = (size_t)file.e_phoff + i * sizeof part;
		if (file.e_phoff > size || place + sizeof part > size)
			return 0;
		memcpy(&part, head->bytes + place, sizeof part);
		if (part.p_type != PT_INTERP)
			continue;
		if (part.p_filesz < 2 || part.p_filesz > CE_LOADER_SIZE || part.p_offset > size ||
		    part.p_offset + part.p_filesz > size)
			return 0;
		memcpy(name, head->bytes + part.p_offset, part.p_filesz - 1);
		name[part.p_filesz - 1] = '\0';
		return 1;
	}
	return 0;
}

int ce_needed_program(const struct ce_head *head, char name[CE_LOADER_SIZE])
{
	if (ce_is_script(head))
		return name_interpreter(head, name);
	return is_elf(head) && name_loader(head, name);
}

const Elf64_Ehdr *ce_own_head(void)
{
	return &__ehdr_start;
}

int ce_is_of_other_machine(const struct ce_head *head, Elf64_Ehdr *file)
{
	if (!is_elf(head))
		return 0;
	memcpy(file, head->bytes, sizeof *file);
	return file->e_machine != __ehdr_start.e_machine;
}

int ce_may_not_start(const char *path)
{
	char name[CE_LOADER_SIZE];
	struct ce_head head;
	Elf64_Ehdr file;
	CE_AUTO_FD fd = ce_read_head(path, &head);

	if (head.size < 0)
		return errno == EIO;
	if (ce_is_of_other_machine(&head, &file))
		return 1;
	if (!ce_needed_program(&head, name))
		return 0;
	if (faccessat(AT_FDCWD, name, F_OK, AT_EACCESS) < 0)
		return 1;
	if (!ce_is_script(&head))
		return 0;
	if (memchr(head.bytes, '\r', strcspn(head.bytes, "\n")) != NULL || access(path, R_OK) < 0)
		return 1;
	CE_AUTO_FD interpreter = ce_read_head(name, &head);
	return ce_is_of_other_machine(&head, &file);
}
