/*
 * Random input for everything in C that reads untrusted bytes: the guard's specification, the pieces of a
 * plan, a file of --multi-prog, the launcher's answer, an image's passwd. The sanitizers report what is
 * wrong.
 *
 *   fuzz SECONDS SEED
 *
 * The same seed makes the same input. Runs in an empty root directory and, if possible, as nobody, so that an
 * operation which appears by accident does no harm.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/io.h"
#include "guard/guard_ops.h"
#include "plugin/carry.h"
#include "plugin/session.h"
#include "plugin_user/multi_prog.h"

enum { MOST_INPUT = 4096, NOBODY = 65534 };

static uint64_t state;

/* xorshift64*, because the C libraries' generators differ */
static uint32_t random_number(uint32_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * 2685821657736338717ULL) >> 32) % below;
}

struct input {
	char bytes[MOST_INPUT];
	size_t size;
};

static void put(struct input *input, const void *bytes, size_t size)
{
	if (size > MOST_INPUT - input->size)
		size = MOST_INPUT - input->size;
	memcpy(input->bytes + input->size, bytes, size);
	input->size += size;
}

static void put_text(struct input *input, const char *text)
{
	put(input, text, strlen(text));
}

static const char *const numbers[] = {
	"0",	    "1",   "2",	  "3",	 "-1", "255",			"256", "257",
	"00000002", "2 ",  " 2",  "+2",	 "x",  "9223372036854775807",	"",    "4096",
	"2x",	    "0x2", "1e3", "126", "64", "-9223372036854775808", "99999999999999999999",
};

static const char *const small_numbers[] = { "0", "1", "2", "3" };

static const char *random_of(const char *const list[], size_t count)
{
	return list[random_number((uint32_t)count)];
}

#define RANDOM_OF(list) random_of(list, sizeof(list) / sizeof(list)[0])

static void put_noise(struct input *input, uint32_t most)
{
	for (uint32_t left = random_number(most); left > 0; left--) {
		char byte = (char)random_number(256);
		put(input, &byte, 1);
	}
}

static void mutate(struct input *input)
{
	for (uint32_t times = random_number(4); times > 0 && input->size > 0; times--) {
		size_t at = random_number((uint32_t)input->size);
		switch (random_number(4)) {
		case 0:
			input->bytes[at] = (char)random_number(256);
			break;
		case 1:
			input->bytes[at] = '\0';
			break;
		case 2:
			input->size = at;
			break;
		default:
			memmove(input->bytes + at, input->bytes + at + 1, input->size - at - 1);
			input->size--;
		}
	}
}

/* Copy the input into heap memory of exactly its size, so that no read beyond it goes unnoticed. */
static char *exactly(const struct input *input, int with_nul)
{
	char *copy = calloc(1, input->size + (with_nul || input->size == 0));

	if (copy == NULL)
		abort();
	memcpy(copy, input->bytes, input->size);
	return copy;
}

/* ---- targets ----------------------------------------------------------------------------------- */

static void fuzz_specification(void)
{
	/* names of operations that only affect this process; any others would really be executed */
	static const char *const names[] = { "environment", "environment", "environmen", "" };
	struct input input = { .size = 0 };
	struct guard guard = GUARD_INIT;

	for (uint32_t count = random_number(4); count > 0; count--) {
		const char *name = RANDOM_OF(names), *number = RANDOM_OF(numbers);
		put(&input, name, strlen(name) + 1);
		put(&input, number, strlen(number) + 1);
		put_noise(&input, 20);
		put(&input, "", 1);
		put_noise(&input, 20);
		put(&input, "", random_number(2));
	}
	mutate(&input);
	char *text = exactly(&input, 0);
	(void)guard_run_operations(&guard, text, input.size);
	free(text);
	ce_error_clear(&guard.err);
	clearenv();
}

static void fuzz_carry(void)
{
	static const char *const names[] = { CE_CARRY_COUNT "=", CE_CARRY_PART "0=", CE_CARRY_PART "1=",
					     CE_CARRY_PART "2=", CE_CARRY_PART "-1=", CE_CARRY_PART,
					     CE_CARRY_COUNT,	 "=" };
	char *environment[9] = { NULL };

	for (size_t i = 0, count = random_number(9); i < count; i++) {
		struct input input = { .size = 0 };
		put_text(&input, i == 0 ? names[0] : RANDOM_OF(names));
		/* large counts, which need much memory, less often than small ones */
		put_text(&input, i == 0 && random_number(16) > 0 ? RANDOM_OF(small_numbers)
								 : RANDOM_OF(numbers));
		put_noise(&input, random_number(8) == 0 ? 50 : 1);
		if (random_number(4) == 0)
			mutate(&input);
		environment[i] = exactly(&input, 1);
	}
	free(ce_carry_get(environment));
	for (size_t i = 0; environment[i] != NULL; i++)
		free(environment[i]);
}

static void fuzz_answer(void)
{
	static int reply[2], life[2];
	static const char *const kinds[] = { "R", "F", "R/", "F1\n", "", "\n", "F" };
	struct input input = { .size = 0 };
	struct ce_container container = CE_CONTAINER_INIT;
	struct ce_error err = CE_ERROR_INIT;
	int fds[CE_MAX_FDS] = { 0 };

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, reply) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, life) < 0)
		abort();
	struct ce_launcher launcher = { .reply = reply[0], .life = life[0], .process = -1 };
	put_text(&input, RANDOM_OF(kinds));
	if (random_number(2) == 0)
		put_text(&input, RANDOM_OF(numbers));
	put_noise(&input, 40);
	mutate(&input);
	(void)ce_send(reply[1], input.bytes, input.size, fds, random_number(CE_MAX_FDS + 1));
	if (random_number(4) == 0)
		ce_close_fd(&life[1]);
	if (ce_session_wait(&launcher, 1, &container, &err) == 0 &&
	    (container.guard < 0 || container.workdir == NULL))
		abort();
	ce_container_close(&container);
	ce_error_clear(&err);
	for (int i = 0; i < 2; i++) {
		ce_close_fd(&reply[i]);
		ce_close_fd(&life[i]);
	}
}

static void fuzz_passwd(void)
{
	static const char *const parts[] = { "a:x:1000:1000::/:/bin/sh", "\n", ":", "x", "1000", "1000:",
					     "a:x:", "\n\n", "#", ":::" };
	struct input input = { .size = 0 };
	struct guard guard = GUARD_INIT;
	char *args[] = { (char *)".", (char *)"/etc/passwd", (char *)"1000", (char *)"me:x:1000:", NULL };

	for (uint32_t count = random_number(8); count > 0; count--)
		put_text(&input, RANDOM_OF(parts));
	if (random_number(3) == 0)
		put_noise(&input, 10);
	CE_AUTO_FD file = open("etc/passwd", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (file < 0 || ce_write_all(file, input.bytes, input.size) < 0)
		abort();
	/* the second time the entry is found: unless a NUL hides it, nothing is added twice */
	struct stat once, twice;
	if (guard_op_root_entry(&guard, args) < 0 || fstat(file, &once) < 0 ||
	    guard_op_root_entry(&guard, args) < 0 || fstat(file, &twice) < 0 ||
	    (once.st_size != twice.st_size && memchr(input.bytes, 0, input.size) == NULL))
		abort();
}

/* Check that nothing of a file of --multi-prog is lost: without the words that were put in, it must be what
 * it was. */
static void fuzz_programs(void)
{
	static const char ours[] = "/Z ";
	static const char *const parts[] = { "0", "1-3,5", "*", " ", "\t", "\n", "\n\n", "\\", "\\\n", "#",
					     "a", "'b c'", "%t", "\r\n", "\xc3\xbc" };
	struct input input = { .size = 0 };
	struct ce_error err = CE_ERROR_INIT;

	for (uint32_t count = random_number(24); count > 0; count--)
		put_text(&input, RANDOM_OF(parts));
	put(&input, "", 1);
	char *text = input.bytes;
	if (ce_multi_prog_prefix(&text, "/Z", &err) < 0)
		abort();
	const char *given = input.bytes, *made = strchr(text, '\n') + 1;
	while (*made != '\0') {
		if (strncmp(made, ours, strlen(ours)) == 0)
			made += strlen(ours);
		else if (*made++ != *given++)
			abort();
	}
	if (*given != '\0')
		abort();
	free(text);
}

/* ---- the run ----------------------------------------------------------------------------------- */

static void run(unsigned seconds, uint64_t seed)
{
	/* the last two call the kernel and are slow */
	static void (*const targets[])(void) = { fuzz_specification, fuzz_carry, fuzz_programs,
						 fuzz_answer, fuzz_passwd };
	time_t end = time(NULL) + (time_t)seconds;
	unsigned long count = 0;

	for (; time(NULL) < end; count++) {
		/* each input depends on the seed and its number alone */
		state = (seed << 32 ^ count) * 6364136223846793005ULL + 1442695040888963407ULL;
		targets[count % 64 < 62 ? count % 3 : 3 + count % 2]();
	}
	printf("%lu random inputs, seed %lu\n", count, (unsigned long)seed);
	fflush(stdout);
}

static void confine(const char *directory)
{
	if (chdir(directory) < 0 || mkdir("etc", 0777) < 0 || chmod("etc", 0777) < 0)
		abort();
	if (geteuid() != 0)
		return;
	if (chroot(".") < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0)
		abort();
}

int main(int argc, char **argv)
{
	unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 5;
	uint64_t seed = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	char directory[] = "/tmp/ce-c-fuzz-XXXXXX", path[64];
	int status = -1;

	if (mkdtemp(directory) == NULL || chmod(directory, 0755) < 0)
		return 1;
	pid_t pid = fork();
	if (pid == 0) {
		confine(directory);
		run(seconds, seed);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	snprintf(path, sizeof path, "%s/etc/passwd", directory);
	unlink(path);
	snprintf(path, sizeof path, "%s/etc", directory);
	rmdir(path);
	rmdir(directory);
	if (status != 0)
		printf("random input, seed %lu: FAILED\n", (unsigned long)seed);
	return status != 0;
}
