#define _GNU_SOURCE
#include "exec_check.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/magic.h>

#include "io.h"

/* The kernel's own limit for symlinks in a path. */
enum { MOST_LINKS = 40 };

/* Replace the path of a symlink with its target and return 1. Return 0 if it is not a symlink, or if the path
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

/* Return CE_RETURNS and the reason if the first line ends as on Windows, and the kernel or env takes the
 * carriage return for a part of the interpreter's name. */
static int has_return(const char *head, const char *name, char why[CE_WHY_SIZE])
{
	size_t line = strcspn(head, "\n");
	const char *after = head + 2 + strspn(head + 2, " \t") + strlen(name);
	const char *base = strrchr(name, '/') + 1;
	const char *of = after[0] == '\r' ? base : "env";

	if (head[line] != '\n' || head[line - 1] != '\r' || strcmp(base, of) != 0)
		return 0;
	snprintf(why, CE_WHY_SIZE,
		 "its lines end with a carriage return, as on Windows, which becomes a part of the "
		 "interpreter's name");
	return CE_RETURNS;
}

/* ---- processors -------------------------------------------------------------------------------- */

enum { MACHINE_NAME = 40, NO_EMULATOR = 99 };

/* Write the name that images have for the file's processor, such as arm64. */
static void name_machine(const Elf64_Ehdr *file, char name[MACHINE_NAME])
{
	static const struct {
		unsigned machine;
		const char *name;
	} known[] = { { EM_X86_64, "amd64" }, { EM_AARCH64, "arm64" }, { EM_PPC64, "ppc64le" },
		      { EM_S390, "s390x" }, { EM_RISCV, "riscv64" } };
	unsigned machine = file->e_machine;

	if (file->e_ident[EI_DATA] != ce_own_head()->e_ident[EI_DATA])
		machine = __builtin_bswap16(file->e_machine);
	snprintf(name, MACHINE_NAME, "another processor (ELF machine %u)", machine);
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (known[i].machine == machine)
			snprintf(name, MACHINE_NAME, "%s", known[i].name);
	}
}

/* Return whether the kernel certainly has no emulator (binfmt_misc) for files with this ELF header: try to
 * execute the header alone, which has no code to run. */
static int is_without_emulator(Elf64_Ehdr head)
{
	char name[] = "ce-try", *const argv[] = { name, NULL }, *const none[] = { NULL };
	int status = 0;
	CE_AUTO_FD file = memfd_create(name, 0);

	head.e_phnum = 0;
	if (file < 0 || write(file, &head, sizeof head) != (ssize_t)sizeof head)
		return 0;
	pid_t child = fork();
	if (child == 0) {
		/* an emulator would print an error */
		close(STDOUT_FILENO);
		close(STDERR_FILENO);
		fexecve(file, argv, none);
		_exit(errno == ENOEXEC ? NO_EMULATOR : 0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) == NO_EMULATOR;
}

static int is_of_image(int fd)
{
	struct statfs place;

	return fstatfs(fd, &place) == 0 && place.f_type == OVERLAYFS_SUPER_MAGIC;
}

/* Return CE_FOREIGN and the reason if the file belongs to the image and is for another processor than the
 * node's, CE_UNFIT and the reason if it is another file of that kind, else 0. */
static int is_foreign(int fd, const struct ce_head *head, char why[CE_WHY_SIZE])
{
	Elf64_Ehdr file;
	char its[MACHINE_NAME], here[MACHINE_NAME];

	if (!ce_is_of_other_machine(head, &file) || !is_without_emulator(file))
		return 0;
	int of_image = is_of_image(fd);
	name_machine(&file, its);
	name_machine(ce_own_head(), here);
	snprintf(why, CE_WHY_SIZE, "%s for %s, the node is %s", of_image ? "the image is" : "it is", its,
		 here);
	return of_image ? CE_FOREIGN : CE_UNFIT;
}

/* ---- the check --------------------------------------------------------------------------------- */

/* Return whether a loader or an interpreter does not exist, and write to `why` that it does not. */
static int is_missing(const char *name, char why[CE_WHY_SIZE])
{
	char end[CE_LOADER_SIZE];

	/* what cannot be looked up for another reason may be there: the errno of execve says more */
	if (faccessat(AT_FDCWD, name, F_OK, AT_EACCESS) == 0 || errno != ENOENT)
		return 0;
	if (ce_leads_nowhere(name, end))
		snprintf(why, CE_WHY_SIZE, "it needs '%s', a link to '%s', which does not exist", name, end);
	else
		snprintf(why, CE_WHY_SIZE, "it needs '%s', which does not exist", name);
	return 1;
}

/* Return 1 and the reason if the interpreter of a script could not open it. Before execve, this process has
 * capabilities over the container's files, which access() leaves out, as its user is not root there. */
static int is_out_of_reach(const char *path, char why[CE_WHY_SIZE])
{
	char directory[CE_LOADER_SIZE];

	if (access(path, R_OK) == 0 || errno != EACCES || strlen(path) >= sizeof directory)
		return 0;
	strcpy(directory, path);
	for (char *slash = strchr(directory + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (access(directory, X_OK) < 0 && errno == EACCES) {
			snprintf(why, CE_WHY_SIZE,
				 "its interpreter cannot open it: the directory '%s' on the way has "
				 "no x for you", directory);
			return 1;
		}
		*slash = '/';
	}
	snprintf(why, CE_WHY_SIZE, "its interpreter cannot open it: you may not read it");
	return 1;
}

int ce_cannot_start(const char *path, char why[CE_WHY_SIZE])
{
	char name[CE_LOADER_SIZE];
	struct ce_head head;
	CE_AUTO_FD fd = ce_read_head(path, &head);

	/* a file that is executable but not readable is fine; a damaged image or disk is not */
	if (head.size < 0 && errno == EIO) {
		snprintf(why, CE_WHY_SIZE, "it cannot be read: %s", strerror(EIO));
		return is_of_image(fd) ? CE_DAMAGED : CE_UNFIT;
	}
	int is_script = ce_is_script(&head);
	int rc = is_foreign(fd, &head, why);
	if (rc != 0)
		return rc;
	if (!ce_needed_program(&head, name))
		return 0;
	if (is_script && has_return(head.bytes, name, why))
		return CE_RETURNS;
	if (is_missing(name, why))
		return is_script ? CE_NO_INTERPRETER : CE_UNFIT;
	if (!is_script)
		return 0;
	if (is_out_of_reach(path, why))
		return CE_OUT_OF_REACH;
	CE_AUTO_FD interpreter = ce_read_head(name, &head);
	return is_foreign(interpreter, &head, why);
}

void ce_not_started(const char *path, int number, char why[CE_WHY_SIZE])
{
	char end[CE_LOADER_SIZE];

	if (number == ENOENT && ce_leads_nowhere(path, end))
		snprintf(why, CE_WHY_SIZE, "it is a link to '%s', which does not exist", end);
	else if (ce_cannot_start(path, why) == 0)
		snprintf(why, CE_WHY_SIZE, "%s", strerror(number));
}
