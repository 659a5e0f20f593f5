"""Pack a directory into a SquashFS file, and report the progress."""

from __future__ import annotations

import os
from collections.abc import Iterator

from container_engine.base import process
from container_engine.base.errors import UserError
from container_engine.images.listener import Listener
from container_engine.images.pack.pack import Packer
from container_engine.images.squashfs import Superblock


def pack(directory: str, target: str, packer: Packer, listener: Listener, *more: str) -> Superblock:
    """Pack a directory into `target` and report the progress. Raise CeError or OSError."""
    total = sum(_sizes(directory))

    def on_read(done: int) -> None:
        listener.far(directory, "packing", min(done, total), total)

    try:
        return packer.pack_directory(directory, target, on_read, *more)
    except process.CommandError as error:
        # the reason precedes the line that reports the exit
        said = [line.strip() for line in error.stderr.splitlines() if line.strip()]
        message = "; ".join(said[-2:]) or error.message
        text = f"mksquashfs: {message}"
        raise UserError(text, see="image-format", details=error.details, name=directory) from None


def _sizes(directory: str) -> Iterator[int]:
    def fail(error: OSError) -> None:
        raise error

    seen = set()
    for where, _directories, names in os.walk(directory, onerror=fail):
        for name in names:
            status = os.lstat(os.path.join(where, name))
            if status.st_nlink == 1:
                yield status.st_size
            elif status.st_ino not in seen:
                seen.add(status.st_ino)
                yield status.st_size
