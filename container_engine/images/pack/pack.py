"""Pack layers, or a directory, into a SquashFS file."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, BinaryIO

from container_engine.base import process
from container_engine.base.errors import CeError, UserError
from container_engine.images import squashfs
from container_engine.images.listener import Listener
from container_engine.images.pack import layers, merge_seek, merge_stream
from container_engine.images.pack.form import USUAL, Form
from container_engine.images.policy import UNLIMITED, Account, Budget
from container_engine.images.squashfs import Superblock

# mksquashfs's queues would take a quarter of the memory; the limit costs no time
_SETTINGS = ["-quiet", "-no-progress", "-mem", "160M"]
# all files belong to root, which in a container is the user
_OWNER = ["-all-root", "-root-mode", "0755"]
# for a directory: a file that cannot be read is an error instead of an empty file, and unchanged
# files always give the same image
_OF_DIRECTORY = ["-exit-on-error", "-mkfs-time", "0", "-no-exports", "-no-xattrs"]
# All files of the archive belong to root. tar2sqfs takes a quarter less processor time than
# mksquashfs and a sixth of the memory, and gives the same image for the same archive.
_TAR2SQFS = ["tar2sqfs", "--quiet", "--no-skip"]
# the benchmark compares an import with these commands
OF_TREE = ("-noappend", *_SETTINGS, *USUAL.mksquashfs, *_OWNER, "-no-xattrs")
OF_ARCHIVE = (*_TAR2SQFS, *USUAL.tar2sqfs, "--num-jobs", str(len(os.sched_getaffinity(0))))
# mksquashfs, because sqfstar 4.5 fails to parse a compression level
_MKSQUASHFS = ["mksquashfs", "-", "-tar", "-noappend", *_SETTINGS, *_OWNER, "-mkfs-time", "0"]
_NEEDED = 1 << 20
_TIMES = 1 << 32  # seconds since 1970 that SquashFS has numbers for
_MAX_JOBS, _WAITING = 16, 1 << 20  # bytes for each job that wait to be compressed


class Packer:
    """A maker of SquashFS files in the site's form. `env` is the environment of its programs.

    All methods raise CeError, or OSError for a full disk or quota.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        timeout_s: float,
        budget: Budget = UNLIMITED,
        form: Form = USUAL,
    ) -> None:
        self._env = env
        self._form = form
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
        """Pack the root file system in a tar archive of `size` bytes, whose name is no digest."""
        self._merged([archive], size, target, on_read, merge_stream.NO_MARK)
        return squashfs.check(target)

    def pack_directory(
        self, directory: str, target: str, on_read: Callable[[int], None]
    ) -> squashfs.Superblock:
        """Pack a directory into `target`; `on_read` is called with the bytes read so far."""
        argv = ["mksquashfs", directory, target, "-noappend", *_SETTINGS, *_OF_DIRECTORY, *_OWNER]
        with self.started(target):  # kept open, as in `_feed`
            try:
                process.measured(
                    [*argv, *self._form.mksquashfs], self._env, self.timeout_s, on_read
                )
            except process.CommandError:
                _check_space(os.path.dirname(target))
                raise
        return squashfs.check(target)

    def pack_archive(self, target: str, write: Callable[[IO[bytes]], None]) -> squashfs.Superblock:
        """Pack the tar archive that `write` writes into `target`."""
        self._feed(target, write)
        return squashfs.check(target)

    def started(self, target: str) -> BinaryIO:
        """Open `target`, empty and with the site's layout; it must not be replaced by another."""
        self._form.lay_out(target, self._env)
        return open(target, "wb")

    def _feed(self, target: str, write: Callable[[IO[bytes]], None]) -> None:
        # kept open: a disk that is full stays so for _check_space when the program removes the file
        with self.started(target):
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
        mark: bytes = merge_stream.WHITEOUT,
    ) -> None:
        try:
            account = self._budget.account(size)
            self._feed(target, lambda out: self._merge(stack, out, on_read, account, mark))
        except merge_stream.UnusualError:
            files = [layers.LayerFile(layer.whole(), layer.content) for layer in stack]
            again = self._budget.account(size)
            self._feed(
                target, lambda out: merge_seek.write_merged(files, out, self._env, again, mark)
            )

    def _of_archive(self, target: str) -> list[str]:
        # unsquashfs 4.5 cannot read an image that tar2sqfs 1.2 has compressed with lz4
        is_unfit = self._form.compressor == "lz4"
        if is_unfit or process.find("tar2sqfs", self._env.get("PATH")) is None:
            return [*_MKSQUASHFS[:2], target, *_MKSQUASHFS[2:], *self._form.mksquashfs]
        jobs = min(len(os.sched_getaffinity(0)), _MAX_JOBS)
        backlog = max(jobs * _WAITING // self._form.block_bytes, 2 * jobs)
        queue = ["--num-jobs", str(jobs), "--queue-backlog", str(backlog)]
        return [*_TAR2SQFS, *self._form.tar2sqfs, *queue, "--force", target]

    def _merge(
        self,
        stack: Sequence[layers.Layer],
        out: IO[bytes],
        on_read: Callable[[int], None],
        account: Account,
        mark: bytes,
    ) -> None:
        process.widen(out.fileno())
        gather = _Gather(out.fileno())
        merger = merge_stream.Merger(gather, mark)
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


_ONCE, _MANY = 1 << 20, 512  # bytes and pieces to write at once; one call may write 1024 pieces


class _Gather:
    """A writer of pieces to a descriptor, many with one call. Call `flush` at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: list[bytes | memoryview] = []
        self._size = 0

    def write(self, piece: bytes | memoryview) -> None:
        self._waiting.append(piece)
        self._size += len(piece)
        if self._size >= _ONCE or len(self._waiting) >= _MANY:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        while waiting:
            written = os.writev(self._fd, waiting)
            done = 0
            while done < len(waiting) and written >= len(waiting[done]):
                written -= len(waiting[done])
                done += 1
            del waiting[:done]
            if written:
                waiting[0] = memoryview(waiting[0])[written:]


def pack_with_progress(
    directory: str, target: str, packer: Packer, listener: Listener
) -> Superblock:
    """Pack a directory into `target` and report the progress. Raise CeError or OSError."""
    total = sum(sizes(directory, _check_time))

    def on_read(done: int) -> None:
        listener.far(directory, "packing", min(done, total), total)

    try:
        return packer.pack_directory(directory, target, on_read)
    except process.CommandError as error:
        # the reason precedes the line that reports the exit
        said = [line.strip() for line in error.stderr.splitlines() if line.strip()]
        message = "; ".join(said[-2:]) or error.message
        text = f"mksquashfs: {message}"
        raise UserError(text, see="image-format", details=error.details, name=directory) from None


def sizes(
    directory: str, check: Callable[[str, os.stat_result], None] = lambda _path, _status: None
) -> Iterator[int]:
    """Yield the sizes of the files below a directory, each file once. Raise OSError.

    `check` is called with each path and its status; it may raise.
    """

    def fail(error: OSError) -> None:
        raise error

    check(directory, os.stat(directory))
    seen = set()
    for where, directories, names in os.walk(directory, onerror=fail):
        for name in (*directories, *names):
            path = os.path.join(where, name)
            status = os.lstat(path)
            check(path, status)
            if stat.S_ISDIR(status.st_mode):
                continue
            if status.st_nlink == 1:
                yield status.st_size
            elif status.st_ino not in seen:
                seen.add(status.st_ino)
                yield status.st_size


def _check_time(path: str, status: os.stat_result) -> None:
    """Raise UserError for a time that mksquashfs would silently replace by another."""
    if not 0 <= status.st_mtime < _TIMES:
        text = "its time is before 1970 or after 2106, which an image cannot have"
        hint = "`touch -h` gives it another; `ce import` of a tar archive takes any"
        raise UserError(text, hint, "image-format", name=path)
