"""Pack layers, or a directory, into a SquashFS file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from container_engine.base import process
from container_engine.base.errors import CeError
from container_engine.images import squashfs
from container_engine.images.budget import UNLIMITED, Account, Budget
from container_engine.images.pack import chunks, layers, merge_seek, merge_stream

# For a Debian system of 1.3 GB, level 2 made 415 MB in 4.9 s of processor time, level 3 406 MB in
# 6.1 s, level 6 382 MB in 13 s. Blocks of more than 128 KiB slow random reads down.
_LEVEL = "2"
# mksquashfs's queues would take a quarter of the memory; the limit costs no time
_SETTINGS = ["-quiet", "-no-progress", "-comp", "zstd", "-Xcompression-level", _LEVEL]
_SETTINGS += ["-mem", "160M"]
# all files belong to root, which in a container is the user
_OWNER = ["-all-root", "-root-mode", "0755"]
# for a directory: a file that cannot be read is an error instead of an empty file, and unchanged
# files always give the same image
_OF_DIRECTORY = ["-exit-on-error", "-mkfs-time", "0", "-no-exports", "-no-xattrs"]
# All files of the archive belong to root. tar2sqfs takes a quarter less processor time than
# mksquashfs and a sixth of the memory, and gives the same image for the same archive.
_TAR2SQFS = ["tar2sqfs", "--quiet", "--no-skip", "--compressor", "zstd", "--comp-extra"]
_TAR2SQFS += [f"level={_LEVEL}"]
# the benchmark compares an import with these commands
OF_TREE = ("-noappend", *_SETTINGS, *_OWNER, "-no-xattrs")
OF_ARCHIVE = (*_TAR2SQFS, "--num-jobs", str(len(os.sched_getaffinity(0))))
# mksquashfs, because sqfstar 4.5 fails to parse a compression level
_MKSQUASHFS = ["mksquashfs", "-", "-tar", "-noappend", *_SETTINGS, *_OWNER, "-mkfs-time", "0"]
_NEEDED = 1 << 20
_MAX_JOBS, _BLOCKS_PER_JOB = 16, 8  # blocks of 128 KiB that wait to be compressed


class Packer:
    """A maker of SquashFS files. `env` is the environment of its programs.

    All methods raise CeError, or OSError for a full disk or quota.
    """

    def __init__(
        self, env: Mapping[str, str], timeout_s: float, budget: Budget = UNLIMITED
    ) -> None:
        self._env = env
        self.timeout_s = timeout_s
        self._budget = budget

    def pack(
        self,
        stack: Sequence[layers.Layer],
        size: int,
        target: str,
        on_read: Callable[[int], None],
    ) -> squashfs.Superblock:
        """Pack layers of `size` bytes together, the lowest first, into `target`.

        `on_read` is called with the size of each piece that was read.
        """
        check = layers.Verification(
            [one.path for one in stack if isinstance(one, layers.LayerFile)]
        )
        try:
            self._merged(stack, size, target, on_read)
        except CeError:
            check.finish()  # a layer with a wrong digest explains all other errors
            raise
        except BaseException:
            check.stop()
            raise
        check.finish()
        return squashfs.check(target)

    def pack_files(
        self, archive: layers.Layer, size: int, target: str, on_read: Callable[[int], None]
    ) -> squashfs.Superblock:
        """Pack the files of a tar archive of `size` bytes, whose name is no digest."""
        self._merged([archive], size, target, on_read)
        return squashfs.check(target)

    def pack_directory(
        self, directory: str, target: str, on_read: Callable[[int], None], *more: str
    ) -> squashfs.Superblock:
        """Pack a directory into `target`; `on_read` is called with the bytes read so far.

        `more` are options of mksquashfs that take precedence over the usual ones.
        """
        argv = ["mksquashfs", directory, target, "-noappend", *_SETTINGS, *_OF_DIRECTORY]
        with open(target, "wb"):  # kept open, as in `_feed`
            try:
                process.measured([*argv, *_OWNER, *more], self._env, self.timeout_s, on_read)
            except process.CommandError:
                _check_space(os.path.dirname(target))
                raise
        return squashfs.check(target)

    def pack_archive(self, target: str, write: Callable[[IO[bytes]], None]) -> squashfs.Superblock:
        """Pack the tar archive that `write` writes into `target`."""
        self._feed(target, write)
        return squashfs.check(target)

    def _feed(self, target: str, write: Callable[[IO[bytes]], None]) -> None:
        # kept open: a disk that is full stays so for _check_space when the program removes the file
        with open(target, "wb"):
            try:
                process.feed(self._of_archive(target), self._env, self.timeout_s, write)
            except process.CommandError:
                _check_space(os.path.dirname(target))  # tar2sqfs reports only "I/O error"
                raise

    def _merged(
        self,
        stack: Sequence[layers.Layer],
        size: int,
        target: str,
        on_read: Callable[[int], None],
    ) -> None:
        try:
            account = self._budget.account(size)
            self._feed(target, lambda out: self._merge(stack, out, on_read, account))
        except merge_stream.UnusualError:
            files = [layers.LayerFile(layer.whole(), layer.content) for layer in stack]
            again = self._budget.account(size)
            self._feed(target, lambda out: merge_seek.write_merged(files, out, self._env, again))

    def _of_archive(self, target: str) -> list[str]:
        if shutil.which("tar2sqfs", path=self._env.get("PATH")) is None:
            return [*_MKSQUASHFS[:2], target, *_MKSQUASHFS[2:]]
        jobs = min(len(os.sched_getaffinity(0)), _MAX_JOBS)
        queue = ["--num-jobs", str(jobs), "--queue-backlog", str(_BLOCKS_PER_JOB * jobs)]
        return [*_TAR2SQFS, *queue, "--force", target]

    def _merge(
        self,
        stack: Sequence[layers.Layer],
        out: IO[bytes],
        on_read: Callable[[int], None],
        account: Account,
    ) -> None:
        process.widen(out.fileno())
        gather = chunks.Gather(out.fileno())
        merger = merge_stream.Merger(gather)
        for number, layer in reversed(list(enumerate(stack))):
            with layers.entries(layer, self._env, account, on_read) as reader:
                merger.add_layer(reader, number)
        merger.finish()
        gather.flush()


def _check_space(directory: str) -> None:
    """Raise OSError if nothing can be written any more because of a full disk or a quota."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, _NEEDED)
    except OSError as error:
        raise OSError(error.errno, error.strerror) from None  # without the name of the draft
