"""Choose what image files are like, as the site wants: compressor, block size, layout on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from container_engine.base import process
from container_engine.base.errors import CeError
from container_engine.images import site_program

BLOCK_SIZES = {"128K": 1 << 17, "256K": 1 << 18, "512K": 1 << 19, "1M": 1 << 20}
# For a Debian system of 1.3 GB, level 2 of zstd made 415 MB in 4.9 s of processor time, level 3
# 406 MB in 6.1 s, level 6 382 MB in 13 s.
_LEVELS = {"gzip": 6, "zstd": 2}
_LAYOUT_LIMIT_S = 20


def _nowhere(_message: str) -> None:
    pass


class Form(NamedTuple):
    """The form of SquashFS files. `level` is the compressor's, None for its default.

    `layout` is a program and its arguments, named in the file `source`; `say` gets its failure.
    """

    compressor: str = "zstd"
    block_size: str = "128K"
    level: int | None = None
    layout: Sequence[str] = ()
    source: str = ""
    say: Callable[[str], None] = _nowhere

    @property
    def block_bytes(self) -> int:
        return BLOCK_SIZES[self.block_size]

    @property
    def mksquashfs(self) -> list[str]:
        """Return the options of mksquashfs."""
        words = ["-comp", self.compressor, "-b", str(self.block_bytes)]
        return words + (["-Xcompression-level", self._level] if self._level else [])

    @property
    def tar2sqfs(self) -> list[str]:
        """Return the options of tar2sqfs."""
        words = ["--compressor", self.compressor, "--block-size", str(self.block_bytes)]
        return words + (["--comp-extra", f"level={self._level}"] if self._level else [])

    @property
    def _level(self) -> str:
        level = self.level or _LEVELS.get(self.compressor)
        return str(level) if level else ""

    def lay_out(self, target: str, env: Mapping[str, str]) -> None:
        """Run the site's program before the file `target` is written, which it may create.

        A file system fixes where a file's parts are when it is created. A failure is only told: the
        image is good, though slow for many nodes.
        """
        if not self.layout:
            return
        values = {"directory": os.path.dirname(target), "file": target}
        try:
            site_program.check(self.layout[0], self.source, "store_layout")
            # without pipes, which a child that outlives the program would keep open
            process.watched(
                site_program.filled(self.layout, values), env, _LAYOUT_LIMIT_S, lambda: None
            )
        except CeError as error:
            self.say(f"the image gets the usual layout on disk, store_layout failed: {error}")


USUAL = Form()
