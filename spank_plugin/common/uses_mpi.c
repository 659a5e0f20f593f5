#define _GNU_SOURCE
#include "uses_mpi.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

/* ---- a program --------------------------------------------------------------------------------- */

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

/* ---- words of a shell -------------------------------------------------------------------------- */

/* Wrappers are short; of longer texts only the beginning is read, so that a launch never waits for this. */
enum { MOST_TEXT = 16 * 1024, MOST_WORDS = 256 };

/* Characters that end a word of a shell. Quotes inside a word do, too, but no usual program's name has
 * any. */
#define SEPARATORS " \t\r\n;&|()<>\"'`"

static int is_at(const struct ce_search *search, const char *directory, size_t length, const char *word)
{
	char file[PATH_MAX];

	return snprintf(file, sizeof file, "%.*s/%s", (int)length, directory, word) < (int)sizeof file &&
	       access(file, X_OK) == 0 && search->is(file);
}

static int is_found(const struct ce_search *search, const char *word)
{
	const char *path = search->path;

	if (strchr(word, '/') != NULL)
		return access(word, X_OK) == 0 && search->is(word);
	while (path != NULL && *path != '\0') {
		size_t length = strcspn(path, ":");
		if (length > 0 && is_at(search, path, length, word))
			return 1;
		path += length + (path[length] == ':');
	}
	return 0;
}

int ce_names_it(const struct ce_search *search, const char *word)
{
	if (word[0] == '-' || word[0] == '#' || strpbrk(word, "=$*{}[]\\") != NULL || !is_found(search, word))
		return 0;
	snprintf(search->name, CE_WORD_SIZE, "%s", word);
	return 1;
}

int ce_in_text(const struct ce_search *search, char *text)
{
	int words = 0;
	char *line_end = NULL, *word_end = NULL;

	if (search->skips != NULL && search->skips(text))
		return 0;
	for (char *line = strtok_r(text, "\n", &line_end); line != NULL;
	     line = strtok_r(NULL, "\n", &line_end)) {
		if (line[strspn(line, " \t")] == '#')
			continue;
		for (char *word = strtok_r(line, SEPARATORS, &word_end); word != NULL && words++ < MOST_WORDS;
		     word = strtok_r(NULL, SEPARATORS, &word_end)) {
			if (ce_names_it(search, word))
				return 1;
		}
	}
	return 0;
}

int ce_in_script(const struct ce_search *search, const char *file, int has_shell)
{
	char text[MOST_TEXT + 1];
	struct stat st;
	/* opening a FIFO would block */
	CE_AUTO_FD fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t size = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, text, MOST_TEXT) : -1;

	if (size < 2 || memchr(text, '\0', (size_t)size) != NULL ||
	    (!has_shell && (text[0] != '#' || text[1] != '!')))
		return 0;
	text[size] = '\0';
	return ce_in_text(search, text);
}
