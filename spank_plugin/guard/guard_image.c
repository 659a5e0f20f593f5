#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "common/io.h"
#include "guard.h"
#include "guard_hold.h"
#include "guard_ops.h"

int guard_op_fuse(struct guard *guard, char **args)
{
	char options[96];

	if (guard_borrow(guard, args[1], args[2]) == 0)
		return 0;

	if (guard->fuse_count == GUARD_MAX_FUSE) {
		errno = 0;
		return guard_fail(guard, "more than %d SquashFS files in one container",
				  GUARD_MAX_FUSE);
	}
	CE_AUTO_FD device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return guard_fail(guard, "cannot open /dev/fuse");
	/* allow_other admits only the processes of this user namespace and of its descendants */
	snprintf(options, sizeof options,
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
	if (mkdir(args[2], 0755) < 0 ||
	    mount(args[1], args[2], "fuse.ce-image", MS_NOSUID | MS_NODEV | MS_RDONLY, options) < 0)
		return guard_fail(guard, "cannot mount a FUSE file system");
	/* without it, nothing is read ahead */
	CE_AUTO_FD reads = guard_read_ahead(args[1], args[2]);
	return guard_start_server(guard, args[0], args[1], device, reads < 0 ? NULL : "tell", reads, -1);
}

/* Wait until the kernel and the FUSE server of a mount have greeted each other. A server that cannot read the
 * file ends, and its output is the cause; a later access would only fail with ENOTCONN. */
int guard_op_served(struct guard *guard, char **args)
{
	struct stat st;

	if (stat(args[0], &st) == 0)
		return 0;
	for (int i = 0; i < 20; i++) {
		if (guard_events(guard, 10) < 0)
			return -1;
	}
	errno = 0;
	return guard_fail(guard, "the SquashFS file cannot be read: it is damaged");
}

/* Return the mount's options on the heap, with the highest of the lower directories first. NULL without
 * memory. */
static char *overlay_options(char **args)
{
	char *options = NULL;

	if (asprintf(&options, "upperdir=%s,workdir=%s,userxattr,lowerdir=", args[0], args[1]) < 0)
		return NULL;
	size_t count = 3;
	while (args[count] != NULL)
		count++;
	while (options != NULL && count-- > 3) {
		char *before = options;
		const char *colon = args[count + 1] != NULL ? ":" : "";
		if (asprintf(&options, "%s%s%s", before, colon, args[count]) < 0)
			options = NULL;
		free(before);
	}
	return options;
}

int guard_op_overlay(struct guard *guard, char **args)
{
	for (char **image = args + 3; *image != NULL; image++) {
		if (guard_op_served(guard, image) < 0)
			return -1;
	}
	CE_AUTO_FREE char *options = overlay_options(args);
	if (options == NULL)
		return guard_fail(guard, "out of memory");
	for (size_t i = 0; i < 3; i++) {
		/* an earlier step of the job may have made it */
		if (mkdir(args[i], 0755) < 0 && (errno != EEXIST || guard->job_container.lock < 0))
			return guard_fail(guard, "cannot make '%s'", args[i]);
	}
	/* nosuid and nodev: the image is the user's, so its setuid bits and devices have no meaning here */
	if (mount("overlay", args[2], "overlay", MS_NOSUID | MS_NODEV, options) < 0)
		return guard_fail(guard, "cannot mount the image's overlay");
	guard_keep_root(guard, args[2]);
	return 0;
}
