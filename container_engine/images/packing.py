"""Layers, or a directory, to a SquashFS file."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from container_engine import process
from container_engine.errors import CeError, UserError
from container_engine.images import blobs, layers, onepass, squashfs, tarstream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Level 3 made 477 MB of a Debian system with 1.3 GB in 8 s; level 15, the default, 421 MB in 90 s.
# mksquashfs, because sqfstar 4.5 fails to parse a compression level.
_SETTINGS = ["-quiet", "-no-progress", "-no-xattrs", "-comp", "zstd", "-Xcompression-level", "3"]
# its queues take a quarter of the memory otherwise; this costs no time
_SETTINGS += ["-mem", "160M"]
# all files are root's, which in a container is the user
_OWNER = ["-all-root", "-root-mode", "0755"]
# of a directory: a file that cannot be read is an error instead of an empty file, and what has not
# changed gives the same image again
_OF_DIRECTORY = ["-exit-on-error", "-mkfs-time", "0", "-no-exports"]
_BUFFER = 1 << 20


class Packer:
    """`env` is the environment of the programs. Both ways raise CeError and leave no part."""

    def __init__(self, env: Mapping[str, str], timeout_s: float) -> None:
        self._env = env
        self._timeout_s = timeout_s

    def pack(
        self, files: Sequence[str], target: str, on_read: Callable[[int], None]
    ) -> squashfs.Superblock:
        """Makes `target` of layer files, the lowest first. `on_read` hears of each piece read."""
        check = blobs.Verification(files)
        try:
            try:
                self._feed(target, lambda out: self._merge(files, out, on_read))
            except tarstream.UnusualError:
                self._feed(target, lambda out: layers.write_merged(files, out, self._env))
        except CeError:
            check.finish()  # a layer that is not what it should be explains all else
            raise
        except BaseException:
            check.stop()
            raise
        check.finish()
        return squashfs.check(target)

    def pack_directory(
        self, directory: str, target: str, on_read: Callable[[int], None], *more: str
    ) -> squashfs.Superblock:
        """Makes `target` of a directory; `on_read` hears how much has been read so far.

        `more` are options of mksquashfs, which count before ours.
        """
        argv = ["mksquashfs", directory, target, "-noappend", *_SETTINGS, *_OF_DIRECTORY]
        process.measured([*argv, *_OWNER, *more], self._env, self._timeout_s, on_read)
        return squashfs.check(target)

    def _feed(self, target: str, write: Callable[[IO[bytes]], None]) -> None:
        argv = ["mksquashfs", "-", target, "-noappend", "-tar", *_SETTINGS, *_OWNER]
        process.feed(argv, self._env, self._timeout_s, write)

    def _merge(self, files: Sequence[str], out: IO[bytes], on_read: Callable[[int], None]) -> None:
        with open(out.fileno(), "wb", buffering=_BUFFER, closefd=False) as wide:
            merger = onepass.Merger(wide)
            for number, path in reversed(list(enumerate(files))):
                with blobs.plain(path, self._env, on_read) as stream:
                    _add(merger, number, path, stream)
            merger.finish()


def _add(merger: onepass.Merger, number: int, path: str, stream: IO[bytes]) -> None:
    try:
        merger.add_layer(tarstream.Reader(stream), number)
    except (tarstream.DamagedError, ValueError) as error:
        # what the decompressor has to say of a damaged layer is nearer to the cause
        while stream.read(_BUFFER):
            pass
        raise UserError(f"layer {path}: damaged: {error}") from None
