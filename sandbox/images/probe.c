/* The only program of the image that has no shell and no libc. Without an argument it prints its rank, ids
 * and working directory; `probe exit N` ends with N; `probe read FILE` prints the file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int show(const char *path)
{
	char buf[4096];
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		perror(path);
		return 1;
	}
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		fwrite(buf, 1, (size_t)n, stdout);
	close(fd);
	return n < 0;
}

int main(int argc, char **argv)
{
	const char *rank = getenv("SLURM_PROCID");
	char *cwd;

	if (argc == 3 && strcmp(argv[1], "exit") == 0)
		return atoi(argv[2]);
	if (argc == 3 && strcmp(argv[1], "read") == 0)
		return show(argv[2]);
	cwd = getcwd(NULL, 0);
	printf("rank=%s uid=%d gid=%d cwd=%s\n", rank ? rank : "none", (int)getuid(), (int)getgid(),
	       cwd ? cwd : "?");
	free(cwd);
	return 0;
}
