/* dlprobe LIBRARY [SYMBOL]: opens a library as NCCL opens its plugin and says which file that was,
 * or why it could not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_file(const char *name)
{
	char line[PATH_MAX + 128];
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
		char *path = strchr(line, '/');
		if (path != NULL && strstr(path, name) != NULL) {
			fputs(path, stdout);
			break;
		}
	}
	if (maps != NULL)
		fclose(maps);
}

int main(int argc, char **argv)
{
	void *library;

	if (argc < 2)
		return 2;
	library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (argc > 2) {
		const char *(*say)(void);
		*(void **)&say = dlsym(library, argv[2]);
		if (say == NULL) {
			printf("%s\n", dlerror());
			return 1;
		}
		printf("%s\n", say());
		return 0;
	}
	print_file(strrchr(argv[1], '/') != NULL ? strrchr(argv[1], '/') + 1 : argv[1]);
	return 0;
}
