#define _GNU_SOURCE
#include "advise.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/io.h"
#include "common/job_places.h"
#include "common/uses_mpi.h"

enum { MOST_OF_CACHE = 16 << 20, MOST_OF_NAMES = 1 << 20, MOST_NAME = 64 };

/* The directories in which the loader looks without ld.so.cache; some distributions have a directory for each
 * machine, and musl's looks into /usr/local/lib. */
#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif
static const char *const defaults[] = {
	"/lib/" MULTIARCH, "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"
};

/* The names of the image's libraries: the content of /etc/ld.so.cache, or the names in the default
 * directories, with a NUL before and after each. */
struct cache {
	char *text; /* on the heap; NULL without memory */
	size_t size;
};

static void add_name(struct cache *names, const char *name)
{
	size_t length = strlen(name) + 1;

	if (strstr(name, ".so.") == NULL || names->size + length > MOST_OF_NAMES)
		return;
	memcpy(names->text + names->size, name, length);
	names->size += length;
}

static struct cache list_defaults(void)
{
	struct cache names = { calloc(1, MOST_OF_NAMES), 1 };

	for (size_t i = 0; names.text != NULL && i < sizeof defaults / sizeof defaults[0]; i++) {
		CE_AUTO_DIR *directory = opendir(defaults[i]);
		const char *name;
		while ((name = ce_next_name(directory)) != NULL)
			add_name(&names, name);
	}
	return names;
}

static struct cache read_cache(void)
{
	struct cache cache = { NULL, 0 };
	CE_AUTO_FD fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		cache.text = ce_read_file_at(fd, MOST_OF_CACHE, &cache.size);
	return cache.text != NULL ? cache : list_defaults();
}

/* Return 1 and put the next name in the cache that begins with `stem` into `name`; return 0 if there is no
 * other. The search begins at *place, which moves on. In ldconfig's cache a name may be the end of a path. */
static int next_name(const struct cache *cache, const char *stem, size_t *place, char name[MOST_NAME])
{
	size_t length = strlen(stem);

	while (cache->text != NULL && *place < cache->size) {
		const char *rest = cache->text + *place;
		const char *found = memmem(rest, cache->size - *place, stem, length);
		if (found == NULL)
			return 0;
		*place = (size_t)(found - cache->text) + length;
		size_t end = strnlen(found, cache->size - (size_t)(found - cache->text));
		if (found == cache->text || (found[-1] != '\0' && found[-1] != '/') || end >= MOST_NAME ||
		    memchr(found, '/', end) != NULL)
			continue;
		memcpy(name, found, end);
		name[end] = '\0';
		return 1;
	}
	return 0;
}

/* Find the first directory of a search path that has `name`, as the loader and Python do, and put it into
 * `directory`. */
static int find_in(const char *path, const char *name, char directory[PATH_MAX])
{
	char file[PATH_MAX + MOST_NAME];

	while (*path != '\0') {
		size_t length = strcspn(path, ":");
		snprintf(directory, PATH_MAX, "%.*s", (int)(length < PATH_MAX ? length : 0), path);
		snprintf(file, sizeof file, "%s/%s", directory, name);
		if (directory[0] == '/' && access(file, R_OK) == 0)
			return 1;
		path += length + (path[length] == ':');
	}
	return 0;
}

static int put_finding(const char *variable, const char *name, const char *directory,
		       char line[CE_LIBRARY_LINE])
{
	snprintf(line, CE_LIBRARY_LINE,
		 "%s comes from '%.600s', not from the image: %s of your shell or its modules names it "
		 "(write %s = \"\" below [env] to use the image's: ce help host-libraries)",
		 name, directory, variable, variable);
	return 1;
}

static int has_host_library(const char *path, char line[CE_LIBRARY_LINE])
{
	static const char *const stems[] = { "libmpi.so.",     "libmpich.so.", "libfabric.so.",
					     "libucp.so.",     "libpmix.so.",  "libpmi2.so.",
					     "libibverbs.so.", "libnccl.so.",  "libcuda.so.",
					     "libcudart.so.",  "libcudnn.so.", "libcublas.so.",
					     "libstdc++.so.",  "libc.so." };
	struct cache cache = read_cache();
	CE_AUTO_FREE char *text = cache.text;
	char name[MOST_NAME], directory[PATH_MAX];

	(void)text;
	for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++) {
		size_t place = 0;
		while (next_name(&cache, stems[i], &place, name)) {
			if (find_in(path, name, directory) && ce_is_mounted(directory))
				return put_finding("LD_LIBRARY_PATH", name, directory, line);
		}
	}
	return 0;
}

static int image_has_package(const char *name)
{
	char pattern[256];
	glob_t found;

	snprintf(pattern, sizeof pattern,
		 "{/usr,/usr/local,/opt/*}/lib{,64}/python3*/{site,dist}-packages/%s", name);
	int has = glob(pattern, GLOB_BRACE | GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc > 0;
	globfree(&found);
	return has;
}

static int has_host_package(const char *path, char line[CE_LIBRARY_LINE])
{
	static const char *const packages[] = { "mpi4py", "torch", "numpy",  "scipy", "pandas",
						"cupy",	  "jaxlib", "tensorflow" };
	char directory[PATH_MAX];

	for (size_t i = 0; i < sizeof packages / sizeof packages[0]; i++) {
		if (find_in(path, packages[i], directory) && ce_is_mounted(directory) &&
		    image_has_package(packages[i]))
			return put_finding("PYTHONPATH", packages[i], directory, line);
	}
	return 0;
}

int ce_find_host_library(int records_fd, const struct ce_variables *variables, char line[CE_LIBRARY_LINE])
{
	const char *libraries = ce_search_path_of_job(records_fd, variables, "LD_LIBRARY_PATH");
	if (libraries != NULL && has_host_library(libraries, line))
		return 1;
	const char *packages = ce_search_path_of_job(records_fd, variables, "PYTHONPATH");
	return packages != NULL && has_host_package(packages, line);
}

/* ---- places that are not there ----------------------------------------------------------------- */

int ce_find_missing_places(int records_fd, const struct ce_variables *variables, char line[CE_LIBRARY_LINE])
{
	char names[CE_LIBRARY_LINE / 2] = "";
	size_t used = 0;

	for (const char *const *name = ce_naming_variables; *name != NULL; name++) {
		const char *value = ce_missing_place(records_fd, variables, *name);
		if (value == NULL)
			continue;
		int more = snprintf(names + used, sizeof names - used, "%s%s='%.100s'", used > 0 ? ", " : "",
				    *name, value);
		if (more < 0 || (size_t)more >= sizeof names - used) {
			names[used] = '\0';
			break;
		}
		used += (size_t)more;
	}
	if (used > 0)
		snprintf(line, CE_LIBRARY_LINE,
			 "%s of your shell or its modules: not in the container (mount it, or remove the "
			 "variable by NAME = \"\" below [env]: ce help host-libraries)",
			 names);
	return used > 0;
}

/* ---- a program for another MPI ----------------------------------------------------------------- */

static const char *family(const char *library)
{
	if (strstr(library, ".so.40") != NULL)
		return "Open MPI";
	return strstr(library, ".so.12") != NULL ? "MPICH" : "MPI";
}

static int is_in_cache(const struct cache *cache, const char *wanted)
{
	char name[MOST_NAME];
	size_t place = 0;

	while (next_name(cache, wanted, &place, name)) {
		if (strcmp(name, wanted) == 0)
			return 1;
	}
	return 0;
}

static int is_in_defaults(const char *wanted)
{
	char directory[PATH_MAX];

	for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
		if (find_in(defaults[i], wanted, directory))
			return 1;
	}
	return 0;
}

/* Return 1 and the first MPI library of the image in `name`, 0 if it has none. */
static int has_other(const struct cache *cache, char name[MOST_NAME])
{
	size_t first = 0, second = 0;

	return next_name(cache, "libmpi.so.", &first, name) ||
	       next_name(cache, "libmpich.so.", &second, name);
}

int ce_lacks_mpi(const char *program, const struct ce_variables *variables, char line[CE_LIBRARY_LINE])
{
	char wanted[CE_MPI_NAME], other[MOST_NAME], directory[PATH_MAX];

	if (!ce_needs_mpi(program, wanted))
		return 0;
	const char *path = variables->get(variables->context, "LD_LIBRARY_PATH");
	struct cache cache = read_cache();
	CE_AUTO_FREE char *text = cache.text;
	if (text == NULL || is_in_cache(&cache, wanted) || is_in_defaults(wanted) ||
	    (path != NULL && find_in(path, wanted, directory)))
		return 0;
	if (!has_other(&cache, other))
		snprintf(line, CE_LIBRARY_LINE,
			 "the program needs %s (%s), which is not in the image: use an image with it",
			 family(wanted), wanted);
	else
		snprintf(line, CE_LIBRARY_LINE,
			 "the program was built with %s (%s), and the image has %s (%s): use an image with "
			 "%s, or build the program in this one (ce help mpi)",
			 family(wanted), wanted, family(other), other, family(wanted));
	return 1;
}
