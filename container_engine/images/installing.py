"""What becomes an image, and the files that lie beside it in a store."""

from __future__ import annotations

import hashlib
import os
import time
from typing import NamedTuple

from container_engine.images import blobs, config
from container_engine.images.files import publish

SUM_SUFFIX = ".sha256"  # of the image and of its configuration: SquashFS has no checksums
MANIFEST_SUFFIX = ".manifest"  # as the registry has it: the image's name is its digest
USED_SUFFIX = ".used"  # when it was imported, and when a launch last used it
SUFFIXES = (".json", SUM_SUFFIX, MANIFEST_SUFFIX, USED_SUFFIX)


class Use(NamedTuple):
    """In seconds since 1970."""

    imported: float
    used: float


class Sums(NamedTuple):
    """SHA-256 in hexadecimal; `config` is "" in files of earlier versions."""

    image: str
    config: str


def install(made: str, configuration: bytes, path: str, manifest: bytes | None = None) -> None:
    """The file `made` becomes the image `path`; `manifest` where that is in a store.

    The configuration first: an image is never there without it. Raises OSError.
    """
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that a plan need not wait for

    publish(config.beside(path), configuration)
    with open(made, "rb") as file, ThreadPoolExecutor(1) as beside:
        digest = None if manifest is None else beside.submit(blobs.sha256, made)
        os.fsync(file.fileno())
    if manifest is not None and digest is not None:
        publish(path + MANIFEST_SUFFIX, manifest)
        of_config = hashlib.sha256(configuration).hexdigest()
        publish(path + SUM_SUFFIX, f"{digest.result()}\n{of_config}\n".encode())
        note_use(path, Use(time.time(), time.time()))
    os.replace(made, path)


def note_use(path: str, use: Use) -> None:
    """Raises OSError."""
    publish(path + USED_SUFFIX, f"{use.imported:.0f}\n{use.used:.0f}\n".encode())


def use(path: str) -> Use | None:
    """What was noted of the image `path`; None where that cannot be read."""
    try:
        with open(path + USED_SUFFIX, encoding="ascii") as file:
            imported, used = map(float, file.read().split())
    except (OSError, ValueError):
        return None
    return Use(imported, used)


def sums(path: str) -> Sums | None:
    """Those of the image `path`; None where they cannot be read."""
    try:
        with open(path + SUM_SUFFIX, encoding="ascii") as file:
            lines = file.read().split()
    except (OSError, UnicodeDecodeError):
        return None
    return Sums(lines[0], lines[1] if len(lines) > 1 else "") if lines else None


def belongings(path: str) -> tuple[str, ...]:
    """The files that lie beside an image of a store, if they are there."""
    return tuple(path + suffix for suffix in SUFFIXES)
