"""The digests of contents that OCI's image specification registers: SHA-256 and SHA-512."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from container_engine.base.files import sum_of

ALGORITHMS = ("sha256", "sha512")
_LONG = 128
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def begun(digest: str) -> hashlib._Hash:
    """Return an empty sum of the kind of `digest`, which `named` compares with it in the end."""
    return hashlib.new(digest.partition(":")[0])


def named(found: hashlib._Hash) -> str:
    """Return a sum as a digest."""
    return f"{found.name}:{found.hexdigest()}"


def is_of(digest: str, content: bytes) -> bool:
    """Check whether a valid digest is that of `content`."""
    whole = begun(digest)
    whole.update(content)
    return named(whole) == digest


def place(digest: str) -> str:
    """Return the path of a valid digest's content below the `blobs` of a layout."""
    return digest.replace(":", "/", 1)


def of_place(path: str) -> str:
    """Return the digest that a file's name stands for: its length says of which kind it is."""
    name = path.rpartition("/")[2]
    return f"{'sha512' if len(name) == _LONG else 'sha256'}:{name}"


def is_as_named(path: str, is_stopped: Callable[[], bool] = lambda: False) -> bool:
    """Check whether a file has the digest of its place, or `is_stopped` became true.

    Raise OSError.
    """
    digest = of_place(path)
    whole = begun(digest)
    return not sum_of(path, whole, is_stopped) or named(whole) == digest
