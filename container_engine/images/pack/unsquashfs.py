"""Look into SquashFS files with unsquashfs, which is confined: the files may be anybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine import process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def unsquashfs(
    words: Sequence[str], env: Mapping[str, str], timeout_s: float, most: int | None = None
) -> bytes:
    """Run `unsquashfs WORDS…` and return its stdout. Raise the errors of process.output.

    It runs with one thread: with one for each processor of a large host, it would exceed the limit
    on its memory.
    """
    from container_engine.images.pack.confine import Cage  # only for images without a description

    argv = ["unsquashfs", "-processors", "1", *words]
    return process.output(argv, env, timeout_s, most, Cage().close)
