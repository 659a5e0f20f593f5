"""The identity of a SquashFS file: the SHA-256 of its content, computed once and kept beside it.

IMAGE.sha256 has three lines: the digest of the image, that of its configuration or "-", and the
size and modification time (ns) that the image had then. A launch reads only this file.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import publish, sha256
from container_engine.images import files_beside

SUFFIX = ".sha256"
_NONE = "-"


class Sums(NamedTuple):
    """The SHA-256 sums of an image and its configuration in hexadecimal; `config` may be "".

    `stamp` is the size and time that the image had, "" in files of earlier versions.
    """

    image: str
    config: str
    stamp: str = ""

    def to_bytes(self) -> bytes:
        return f"{self.image}\n{self.config or _NONE}\n{self.stamp}\n".encode()


def known_digest(path: str) -> str:
    """Return the recorded digest of `path`, sha256:…; "" if there is none or the file changed."""
    try:
        found = sums(path)
        fits = found is not None and found.stamp == _stamp(path)
    except OSError:
        return ""
    return f"sha256:{found.image}" if found is not None and fits else ""


def has_changed(path: str) -> bool:
    """Check whether the content of `path` differs from the recorded digest. Raise OSError.

    The file is read only if its size or time has changed. Without a record the answer is no.
    """
    found = sums(path)
    if found is None or found.stamp == _stamp(path):
        return False
    digest = computed(path)
    if digest != f"sha256:{found.image}":
        return True
    note(path, digest)
    return False


def computed(path: str) -> str:
    """Return the digest of `path`, sha256:…, computed by reading the file. Raise OSError."""
    return f"sha256:{sha256(path)}"


def record(path: str, digest: str, config: bytes | None = None, made: str = "") -> None:
    """Record `digest` for `path`; `made` is where the file is if it does not have that name yet.

    Without `config`, the recorded digest of the configuration stays. Raise OSError.
    """
    if config is None:
        before = sums(path)
        of_config = before.config if before is not None else ""
    else:
        import hashlib

        of_config = hashlib.sha256(config).hexdigest()
    found = Sums(digest.removeprefix("sha256:"), of_config, _stamp(made or path))
    publish(path + SUFFIX, found.to_bytes())


def note(path: str, digest: str) -> None:
    """Record `digest` if this user owns `path`. Errors are ignored: it only saves reading."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_uid == os.geteuid():
            record(path, digest)


def sums(path: str) -> Sums | None:
    """Return the sums recorded for the image `path`, None if they cannot be read or trusted."""
    try:
        text = files_beside.read(path + SUFFIX, path)
        lines = text.decode("ascii").splitlines() if text else []
    except (UserError, UnicodeDecodeError):
        return None
    if not lines or not lines[0]:
        return None
    image, config, stamp = (*lines, "", "")[:3]
    return Sums(image, "" if config == _NONE else config, stamp)


def _stamp(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns}"
