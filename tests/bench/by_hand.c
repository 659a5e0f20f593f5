/*
 * The program that a careful person would write by hand to start a container from a SquashFS file,
 * and nothing more: the yardstick for the node part of a start. Not part of the product.
 *
 * by-hand DIR IMAGE COMMAND [ARG…]
 *
 * Makes user, PID and mount namespaces, covers DIR (an empty directory) with a tmpfs, serves IMAGE
 * with squashfuse_ll, lays an overlay over it at DIR/root and runs COMMAND in DIR until it ends.
 * Then prints "ready" and lives until its stdin is closed; the kernel takes everything along.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		err(1, "%s", path);
	close(fd);
}

static void make_namespaces(void)
{
	char users[64], groups[64];

	snprintf(users, sizeof users, "0 %u 1", geteuid());
	snprintf(groups, sizeof groups, "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
		err(1, "unshare");
	put("/proc/self/setgroups", "deny");
	put("/proc/self/uid_map", users);
	put("/proc/self/gid_map", groups);
}

static void make_session(const char *dir)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
	    mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
	    chdir(dir) < 0)
		err(1, "%s", dir);
	for (const char **name = (const char *[]){ "image", "upper", "work", "root", "home", NULL };
	     *name != NULL; name++) {
		if (mkdir(*name, 0755) < 0)
			err(1, "mkdir %s", *name);
	}
}

static void serve(const char *image)
{
	char options[96], device[32];
	int fd = open("/dev/fuse", O_RDWR);

	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
	snprintf(device, sizeof device, "/dev/fd/%d", fd);
	if (fd < 0 || mount(image, "image", "fuse.squashfuse_ll", MS_NOSUID | MS_NODEV | MS_RDONLY,
			    options) < 0)
		err(1, "fuse");
	if (fork() == 0) {
		execlp("squashfuse_ll", "squashfuse_ll", "-f", image, device, NULL);
		err(1, "squashfuse_ll");
	}
	close(fd);
	if (mount("overlay", "root", "overlay", MS_NOSUID | MS_NODEV,
		  "lowerdir=image,upperdir=upper,workdir=work,userxattr") < 0)
		err(1, "overlay");
}

static void run(char **command)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, 0);
		dup2(null, 1);
		execvp(command[0], command);
		err(1, "%s", command[0]);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
		errx(1, "%s: status %d", command[0], status);
}

int main(int argc, char **argv)
{
	char byte;

	if (argc < 4)
		errx(2, "usage: by-hand DIR IMAGE COMMAND [ARG…]");
	make_namespaces();
	pid_t pid = fork();
	if (pid != 0) {
		int status = 0;
		return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
	}
	make_session(argv[1]);
	serve(argv[2]);
	run(argv + 3);
	if (write(1, "ready\n", 6) != 6)
		return 1;
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
