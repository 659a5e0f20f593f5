/*
 * tracing WAY PID… | tracing WAY all: a tracer that holds processes of its own user for as long as it lives.
 *
 *   interrupt   stops them; SIGCONT does not continue them
 *   exit        stops them when they end, even by SIGKILL
 *
 * "all" are those that it may trace. Prints their number.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

static int hold(const char *way, pid_t pid)
{
	int at_exit = strcmp(way, "exit") == 0;

	if (pid <= 0 || pid == getpid() || ptrace(PTRACE_SEIZE, pid, 0, at_exit ? PTRACE_O_TRACEEXIT : 0) < 0)
		return 0;
	return at_exit || ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0;
}

static int hold_all(const char *way)
{
	DIR *dir = opendir("/proc");
	int held = 0;

	for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
		held += hold(way, (pid_t)atoi(entry->d_name));
	closedir(dir);
	return held;
}

int main(int argc, char **argv)
{
	int held = argc == 3 && strcmp(argv[2], "all") == 0 ? hold_all(argv[1]) : 0;

	for (int i = 2; i < argc; i++)
		held += hold(argv[1], (pid_t)atoi(argv[i]));
	printf("%d\n", held);
	fflush(stdout);
	pause();
	return 0;
}
