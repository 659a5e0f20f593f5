#define _GNU_SOURCE
#include "uses_mpi.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "io.h"

/* All offsets come from the file and are only passed to pread, which fails for impossible ones. */
enum { MOST_SEGMENTS = 64, MOST_ENTRIES = 1024 };

static int read_at(int fd, void *to, size_t size, uint64_t offset)
{
	return offset <= INT64_MAX && pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

/* Return the offset in the file of what is loaded at this address; 0 if no segment contains it. */
static uint64_t place_of(const Elf64_Phdr *segments, size_t count, uint64_t address)
{
	for (size_t i = 0; i < count; i++) {
		const Elf64_Phdr *s = &segments[i];
		if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr < s->p_filesz)
			return s->p_offset + (address - s->p_vaddr);
	}
	return 0;
}

/* The content of a dynamic section, as far as it is needed: the first MPI library, "" for none, and whether
 * there is a search path. */
struct needs {
	char name[CE_MPI_NAME];
	int has_path;
};

static void take_name(int fd, uint64_t place, char name[CE_MPI_NAME])
{
	static const char wanted[] = "libmpi";
	char text[CE_MPI_NAME];
	ssize_t size = place <= INT64_MAX ? pread(fd, text, sizeof text - 1, (off_t)place) : -1;

	if (size < (ssize_t)sizeof wanted - 1 || memcmp(text, wanted, sizeof wanted - 1) != 0)
		return;
	text[size] = '\0';
	strcpy(name, text);
}

static void read_needs(int fd, const Elf64_Phdr *segments, size_t count, const Elf64_Phdr *dynamic,
		       struct needs *needs)
{
	Elf64_Dyn entries[MOST_ENTRIES];
	size_t wanted = dynamic->p_filesz < sizeof entries ? dynamic->p_filesz : sizeof entries, size = 0;
	uint64_t names = 0;

	/* in one read: this delays every start of a task, and the image may be slow */
	ssize_t got =
		dynamic->p_offset <= INT64_MAX ? pread(fd, entries, wanted, (off_t)dynamic->p_offset) : -1;
	while (got > 0 && size < (size_t)got / sizeof entries[0] && entries[size].d_tag != DT_NULL)
		size++;
	for (size_t i = 0; i < size; i++) {
		if (entries[i].d_tag == DT_STRTAB)
			names = place_of(segments, count, entries[i].d_un.d_ptr);
		if (entries[i].d_tag == DT_RPATH || entries[i].d_tag == DT_RUNPATH)
			needs->has_path = 1;
	}
	/* a second pass, because the table of names may follow the entries that use it */
	for (size_t i = 0; i < size && names != 0 && needs->name[0] == '\0'; i++) {
		if (entries[i].d_tag == DT_NEEDED)
			take_name(fd, names + entries[i].d_un.d_val, needs->name);
	}
}

static void read_program(const char *path, struct needs *needs)
{
	Elf64_Ehdr file;
	Elf64_Phdr segments[MOST_SEGMENTS];
	/* opening a FIFO would block */
	CE_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || !read_at(fd, &file, sizeof file, 0) || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
	    file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_phentsize != sizeof segments[0])
		return;
	size_t count = file.e_phnum < MOST_SEGMENTS ? file.e_phnum : MOST_SEGMENTS;
	if (!read_at(fd, segments, count * sizeof segments[0], file.e_phoff))
		return;
	for (size_t i = 0; i < count; i++) {
		if (segments[i].p_type == PT_DYNAMIC) {
			read_needs(fd, segments, count, &segments[i], needs);
			return;
		}
	}
}

int ce_uses_mpi(const char *path)
{
	struct needs needs = { "", 0 };

	read_program(path, &needs);
	return needs.name[0] != '\0';
}

int ce_needs_mpi(const char *path, char name[CE_MPI_NAME])
{
	struct needs needs = { "", 0 };

	read_program(path, &needs);
	if (needs.name[0] == '\0' || needs.has_path)
		return 0;
	strcpy(name, needs.name);
	return 1;
}
