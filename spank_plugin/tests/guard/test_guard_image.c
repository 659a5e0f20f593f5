/* The options with which images are mounted: setuid programs and devices in them have no effect. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/image_figures.h"
#include "guard/stage.h"
#include "harness.h"

static void set_up(const char *directory)
{
	set_up_guard();
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_INT(mount("tmpfs", directory, "tmpfs", 0, NULL), 0);
}

/* Check that the mount at this place has all of these options. */
static void has_options(const char *place, const char *const wanted[], size_t count)
{
	char line[4096], at[1024], options[256], found = 0;
	FILE *mounts = fopen("/proc/self/mountinfo", "re");

	CHECK(mounts != NULL);
	while (fgets(line, sizeof line, mounts) != NULL) {
		if (sscanf(line, "%*s %*s %*s %*s %1023s %255s", at, options) != 2 || strcmp(at, place) != 0)
			continue;
		found = 1;
		for (size_t i = 0; i < count; i++)
			CHECK_CONTAINS(options, wanted[i]);
	}
	fclose(mounts);
	CHECK(found);
}

/* Check that the guard holds a memory file for the figures of an image, whose size nobody can change. */
static void has_figures(const char *image)
{
	char path[64], link[64] = "";
	struct ce_figures found;
	int file = guard.fuse_figures[0];

	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	CHECK(readlink(path, link, sizeof link - 1) > 0);
	CHECK_TEXT(link, CE_FIGURES_LINK);
	CHECK_INT(pread(file, &found, sizeof found, 0), sizeof found);
	CHECK_TEXT(found.image, image);
	CHECK_INT(found.is_shared, 0);
	CHECK_INT(ftruncate(file, 0), -1);
	CHECK_INT(ftruncate(file, 2 * sizeof found), -1);
}

static void mount_image(void)
{
	static const char *const wanted[] = { "ro", "nosuid", "nodev" };
	const char *directory = test_directory(), *place = test_path(directory, "image");
	char server[] = "/bin/true", image[] = "/i.sqsh", *args[] = { server, image, strdup(place), NULL };

	set_up(directory);
	CHECK_INT(guard_op_fuse(&guard, args), 0);
	has_options(place, wanted, 3);
	has_figures("/i.sqsh");
	free(args[2]);
	_exit(0);
}

static void mount_overlay(void)
{
	static const char *const wanted[] = { "nosuid", "nodev" };
	static const char *const names[] = { "upper", "work", "root", "image" };
	const char *directory = test_directory();
	char *args[5] = { NULL };

	set_up(directory);
	for (size_t i = 0; i < 4; i++)
		CHECK((args[i] = strdup(test_path(directory, names[i]))) != NULL);
	CHECK_INT(mkdir(args[3], 0755), 0);
	CHECK_INT(guard_op_overlay(&guard, args), 0);
	has_options(args[2], wanted, 2);
	for (size_t i = 0; i < 4; i++)
		free(args[i]);
	_exit(0);
}

TEST("an image is mounted read-only, its setuid programs and devices are dead")
{
	test_needs_root();
	CHECK_INT(test_in_child(mount_image), 0);
}

TEST("what a container writes over its image has no setuid programs and devices either")
{
	test_needs_root();
	CHECK_INT(test_in_child(mount_overlay), 0);
}
