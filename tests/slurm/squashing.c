/*
 * A file system that keeps root out, as NFS with root_squash does: squashing UID REAL PLACE shows the
 * directory REAL at PLACE, to all users but root, until PLACE is unmounted. New files belong to UID. Like
 * some file systems, it does not report how much room there is.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int real = -1;

/* All paths begin with a slash. */
static const char *below(const char *path)
{
	return path[1] == '\0' ? "." : path + 1;
}

static int answer(long result)
{
	return result < 0 ? -errno : (int)result;
}

/* REAL/.stale says that the server has lost all images: NFS may then fail with EIO, and looking with
 * ESTALE. */
static int is_lost(const char *path)
{
	return strstr(path, ".sqsh") != NULL && faccessat(real, ".stale", F_OK, 0) == 0;
}

static int caller_is_root(void)
{
	return fuse_get_context()->uid == 0;
}

/* The kernel asks this for each name of a path, each time: nothing is remembered. So root gets as far as
 * "/". */
static int squashing_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	if (caller_is_root() && strcmp(path, "/") != 0)
		return -EACCES;
	if (is_lost(path))
		return -ESTALE;
	return answer(fstatat(real, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int squashing_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
			     struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	int fd = caller_is_root() ? -1 : openat(real, below(path), O_RDONLY | O_DIRECTORY);
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;

	(void)offset, (void)fi, (void)flags;
	if (directory == NULL)
		return -EACCES;
	for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
		fill(buffer, entry->d_name, NULL, 0, 0);
	closedir(directory);
	return 0;
}

/* Open a file, and create it if fi->flags say so; squashing_open uses it, too. */
static int squashing_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int fd = openat(real, below(path), fi->flags, mode);

	fi->fh = (uint64_t)fd;
	return fd < 0 ? -errno : 0;
}

static int squashing_open(const char *path, struct fuse_file_info *fi)
{
	return squashing_create(path, 0, fi);
}

static int squashing_read(const char *path, char *to, size_t size, off_t offset,
			  struct fuse_file_info *fi)
{
	if (is_lost(path))
		return -EIO;
	return answer(pread((int)fi->fh, to, size, offset));
}

static int squashing_write(const char *path, const char *from, size_t size, off_t offset,
			   struct fuse_file_info *fi)
{
	(void)path;
	return answer(pwrite((int)fi->fh, from, size, offset));
}

static int squashing_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	(void)path;
	return fi == NULL ? -ENOSYS : answer(ftruncate((int)fi->fh, size));
}

static int squashing_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	return answer(close((int)fi->fh));
}

static int squashing_mkdir(const char *path, mode_t mode)
{
	return answer(mkdirat(real, below(path), mode));
}

static int squashing_unlink(const char *path)
{
	return answer(unlinkat(real, below(path), 0));
}

static int squashing_rmdir(const char *path)
{
	return answer(unlinkat(real, below(path), AT_REMOVEDIR));
}

static int squashing_symlink(const char *target, const char *path)
{
	return answer(symlinkat(target, real, below(path)));
}

static int squashing_readlink(const char *path, char *to, size_t size)
{
	long length = readlinkat(real, below(path), to, size - 1);

	if (length < 0)
		return -errno;
	to[length] = '\0';
	return 0;
}

static int squashing_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	(void)fi;
	return answer(fchmodat(real, below(path), mode, 0));
}

static int squashing_utimens(const char *path, const struct timespec times[2],
			     struct fuse_file_info *fi)
{
	(void)fi;
	return answer(utimensat(real, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int squashing_rename(const char *from, const char *to, unsigned int flags)
{
	return answer(renameat2(real, below(from), real, below(to), flags));
}

static void *squashing_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
	(void)connection;
	config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
	return NULL;
}

static const struct fuse_operations operations = {
	.getattr = squashing_getattr,
	.readdir = squashing_readdir,
	.open = squashing_open,
	.create = squashing_create,
	.read = squashing_read,
	.write = squashing_write,
	.truncate = squashing_truncate,
	.release = squashing_release,
	.mkdir = squashing_mkdir,
	.unlink = squashing_unlink,
	.rmdir = squashing_rmdir,
	.symlink = squashing_symlink,
	.readlink = squashing_readlink,
	.chmod = squashing_chmod,
	.utimens = squashing_utimens,
	.rename = squashing_rename,
	.init = squashing_init,
};

int main(int argc, char **argv)
{
	char options[] = "-oallow_other,default_permissions,fsname=squashing";
	char *words[] = { argv[0], options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(2, words);

	if (argc != 4 || (real = open(argv[2], O_RDONLY | O_DIRECTORY)) < 0)
		return 2;
	struct fuse *fuse = fuse_new(&args, &operations, sizeof operations, NULL);
	if (fuse == NULL || fuse_mount(fuse, argv[3]) < 0 || setuid((uid_t)atoi(argv[1])) < 0)
		return 1;
	umask(0);
	fuse_loop(fuse);
	return 0;
}
