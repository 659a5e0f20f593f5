/* Tests that what is read from an image is recorded, and read ahead from its next mount. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/image_reads.h"
#include "common/io.h"
#include "guard/guard_hold.h"
#include "harness.h"

enum { FILES = 100, SLOW = 40 };

static const char *image, *place;
static struct ce_read pieces[FILES];

static void set_up(void)
{
	char name[64];

	signal(SIGPIPE, SIG_IGN);
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_INT(mount("tmpfs", "/var/tmp", "tmpfs", 0, NULL), 0);
	image = strdup(test_file(test_directory(), "image", "an image", 0644));
	place = strdup(test_path(test_directory(), "place"));
	CHECK(image != NULL && place != NULL);
	CHECK_INT(mkdir(place, 0755), 0);
	CE_AUTO_FD directory = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(directory >= 0);
	for (uint64_t i = 0; i < FILES; i++) {
		pieces[i] = (struct ce_read){ .node = CE_READ_ROOT + 1 + i };
		snprintf(name, sizeof name, CE_READ_NAME "%llx", (unsigned long long)pieces[i].node);
		CE_AUTO_FD file = openat(directory, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		CHECK(file >= 0);
	}
}

static size_t count_opens(int watch)
{
	char events[64 * 1024] __attribute__((aligned(8)));
	ssize_t size = read(watch, events, sizeof events);
	size_t count = 0;

	for (ssize_t at = 0; at < size;) {
		const struct inotify_event *event = (const void *)(events + at);
		count += strncmp(event->name, CE_READ_NAME, strlen(CE_READ_NAME)) == 0;
		at += (ssize_t)(sizeof *event + event->len);
	}
	return count;
}

static unsigned long count_threads(void)
{
	struct stat st;

	CHECK_INT(stat("/proc/self/task", &st), 0);
	return st.st_nlink;
}

/* Mount the image, let a program do `first`, then read the first `count` pieces, and wait for the thread. */
static void tell(const struct ce_read *first, size_t firsts, size_t count)
{
	unsigned long threads = count_threads();
	int told = guard_read_ahead(image, place);

	CHECK(told >= 0);
	(void)ce_write_all(told, first, firsts * sizeof *first);
	(void)ce_write_all(told, pieces, count * sizeof *pieces);
	close(told);
	while (count_threads() > threads)
		usleep(1000);
}

/* Mount the image, let a program read the first `count` pieces of it, and return how many files were opened
 * to be read ahead. */
static size_t opened(size_t count)
{
	CE_AUTO_FD watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	CHECK(watch >= 0 && inotify_add_watch(watch, place, IN_OPEN) >= 0);
	tell(NULL, 0, count);
	return count_opens(watch);
}

static void read_again(void)
{
	set_up();
	CHECK_INT(opened(FILES), 0);
	CHECK_INT(opened(FILES / 2), FILES);
	CHECK_INT(opened(FILES), FILES);
	_exit(0);
}

TEST("what was read from an image is read ahead once a program begins to read it again")
{
	test_needs_root();
	CHECK_INT(test_in_child(read_again), 0);
}

static void read_little(void)
{
	set_up();
	CHECK_INT(opened(FILES), 0);
	CHECK_INT(opened(40), 0);
	CHECK_INT(opened(FILES / 2), FILES);
	_exit(0);
}

TEST("a program that reads little has nothing read ahead, and takes nothing from the record")
{
	test_needs_root();
	CHECK_INT(test_in_child(read_little), 0);
}

static void read_slowly(void)
{
	char events[4096] __attribute__((aligned(8)));
	size_t written = 0;

	set_up();
	int told = guard_read_ahead(image, place);
	CE_AUTO_FD watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	CHECK(told >= 0 && inotify_add_watch(watch, "/var/tmp/ce-answers-0/reads", IN_CLOSE_WRITE) >= 0);
	for (size_t i = 0; i < SLOW; i++) {
		(void)ce_write_all(told, &pieces[i], sizeof pieces[i]);
		usleep(40 * 1000);
		written += read(watch, events, sizeof events) > 0;
	}
	CHECK(written < SLOW * 3 / 4);
	_exit(0);
}

TEST("what is read a little at a time is not written anew each time")
{
	test_needs_root();
	CHECK_INT(test_in_child(read_slowly), 0);
}

/* Tell `reads`, have them read ahead at the next mount, and return how often something in the directory
 * `watched` was opened. */
static size_t opened_in(const char *watched, const struct ce_read *reads, size_t count)
{
	char events[64 * 1024] __attribute__((aligned(8)));
	size_t opens = 0;

	for (int i = 0; i < 2; i++) {
		CE_AUTO_FD watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		CHECK(watch >= 0 && inotify_add_watch(watch, watched, IN_OPEN) >= 0);
		tell(reads, i == 0 ? count : 0, FILES);
		opens = 0;
		ssize_t size = read(watch, events, sizeof events);
		for (ssize_t at = 0; at < size; opens++)
			at += (ssize_t)(sizeof(struct inotify_event) +
					((const struct inotify_event *)(const void *)(events + at))->len);
	}
	return opens;
}

static void find_names(void)
{
	enum { DIRECTORY = 1000, FILE_IN_IT, OUTSIDE };
	const struct ce_read reads[] = {
		{ .node = CE_READ_ROOT, .found = DIRECTORY, .name = "directory" },
		{ .node = DIRECTORY },
		{ .node = DIRECTORY, .name = "none" },
		{ .node = DIRECTORY, .found = FILE_IN_IT, .name = "file" },
		{ .node = FILE_IN_IT, .piece = 1 },
	};
	const struct ce_read outwards[] = {
		{ .node = DIRECTORY, .found = OUTSIDE, .name = ".." },
		{ .node = OUTSIDE, .found = DIRECTORY, .name = "../outside" },
		{ .node = DIRECTORY, .found = DIRECTORY, .name = "directory" },
		{ .node = DIRECTORY },
	};

	set_up();
	const char *outside = strdup(test_path(test_directory(), "outside"));
	CHECK_INT(chdir(place), 0);
	CHECK_INT(system("mkdir directory ../outside && echo 1 > directory/file"), 0);
	/* the directory is listed, the file is read: a lookup opens nothing */
	CHECK_INT(opened_in("directory", reads, sizeof reads / sizeof reads[0]), 2);
	CHECK_INT(opened_in(outside, outwards, sizeof outwards / sizeof outwards[0]), 0);
	_exit(0);
}

TEST("files and directories are found again by their names, and none outside of the image")
{
	test_needs_root();
	CHECK_INT(test_in_child(find_names), 0);
}

static void change_image(void)
{
	set_up();
	CHECK_INT(opened(FILES), 0);
	(void)test_file(test_directory(), "image", "another image", 0644);
	CHECK_INT(opened(FILES), 0);
	CHECK_INT(opened(FILES), FILES);
	_exit(0);
}

TEST("a record of an image that has changed is not followed")
{
	test_needs_root();
	CHECK_INT(test_in_child(change_image), 0);
}

/* Write `size` bytes in place of the only record. */
static void put(const char *text, size_t size)
{
	CE_AUTO_FD fd = open("record", O_WRONLY | O_TRUNC | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_INT(ce_write_all(fd, text, size), 0);
}

static void damage(void)
{
	size_t size;

	set_up();
	CHECK_INT(opened(FILES), 0);
	CHECK_INT(system("cd /var/tmp/ce-answers-0/reads && ln -s $PWD/* /var/tmp/record"), 0);
	CHECK_INT(chdir("/var/tmp"), 0);
	CE_AUTO_FREE char *text = ce_read_path(AT_FDCWD, "record", 0, 1 << 20, &size);
	CHECK(text != NULL);
	for (size_t i = 0; i < size; i += 67) {
		text[i] ^= 1;
		put(text, size);
		CHECK_INT(opened(FILES), 0);
		text[i] ^= 1;
		put(text, i);
		CHECK_INT(opened(FILES), 0);
	}
	put(text, size);
	CHECK_INT(opened(FILES), FILES);
	_exit(0);
}

TEST("a record that is damaged or cut is not followed")
{
	test_needs_root();
	CHECK_INT(test_in_child(damage), 0);
}

static void distrust(void)
{
	set_up();
	CHECK_INT(opened(FILES), 0);
	CHECK_INT(system("chmod 644 /var/tmp/ce-answers-0/reads/*"), 0);
	CHECK_INT(opened(FILES), 0);
	CHECK_INT(chmod("/var/tmp/ce-answers-0/reads", 0777), 0);
	CHECK_INT(guard_read_ahead(image, place), -1);
	_exit(0);
}

TEST("a record that others may write is not followed")
{
	test_needs_root();
	CHECK_INT(test_in_child(distrust), 0);
}

/* Mount a file system at the image's place. Return its device. */
static int mount_mute(void)
{
	char options[64];
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	CHECK(device >= 0);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	CHECK_INT(mount("mute", place, "fuse", 0, options), 0);
	return device;
}

/* Answer the kernel's greeting, and take the first request about a name, without an answer. */
static void take_request(int device)
{
	struct {
		struct fuse_in_header head;
		char body[64 * 1024];
	} request = { 0 };
	struct {
		struct fuse_out_header head;
		struct fuse_init_out init;
	} greeting = { 0 };

	CHECK(read(device, &request, sizeof request) > 0);
	CHECK_INT(request.head.opcode, FUSE_INIT);
	greeting.head.len = sizeof greeting;
	greeting.head.unique = request.head.unique;
	greeting.init.major = FUSE_KERNEL_VERSION;
	greeting.init.minor = FUSE_KERNEL_MINOR_VERSION;
	greeting.init.max_write = 4096;
	CHECK_INT(write(device, &greeting, sizeof greeting), sizeof greeting);
	do
		CHECK(read(device, &request, sizeof request) > 0);
	while (request.head.opcode != FUSE_LOOKUP);
}

static bool ends_soon(pid_t pid)
{
	for (int ms = 0; ms < 10000; ms += 10) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		usleep(10000);
	}
	return false;
}

/* Look a name up: the request that is taken. */
static void look_up(void)
{
	struct stat found;

	(void)stat(test_path(place, "name"), &found);
}

static void look_up_ahead(void)
{
	int told = guard_read_ahead(image, place);

	(void)ce_write_all(told, pieces, sizeof pieces);
	pause();
}

/* Kill the guard of a job's container while it waits for the answer of a server that has ended. */
static void end_both(void (*wait_for_answer)(void))
{
	struct guard guard = GUARD_INIT;

	CE_AUTO_FD device = mount_mute();
	guard.job_container.lock = guard.log = STDERR_FILENO;
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK_INT(guard_start_server(&guard, "/bin/true", image, device, NULL, -1, -1), 0);
		CHECK(guard.fuse_device[0] >= 0);
		ce_close_fd(&device);
		wait_for_answer();
		_exit(1);
	}
	take_request(device);
	CHECK_INT(kill(pid, SIGKILL), 0);
	ce_close_fd(&device);
	bool has_ended = ends_soon(pid);
	CHECK_INT(umount2(place, MNT_FORCE), 0); /* else a thread that waits would do so forever */
	CHECK(has_ended);
}

static void end_both_while_looking_up(void)
{
	set_up();
	end_both(look_up);
	_exit(0);
}

static void end_both_while_reading_ahead(void)
{
	set_up();
	CHECK_INT(opened(FILES), 0);
	end_both(look_up_ahead);
	_exit(0);
}

TEST("a guard that is killed with its server ends, even while it waits for an answer")
{
	test_needs_root();
	CHECK_INT(test_in_child(end_both_while_looking_up), 0);
}

TEST("a guard that is killed with its server ends, even while it waits for an answer to read ahead")
{
	test_needs_root();
	CHECK_INT(test_in_child(end_both_while_reading_ahead), 0);
}
