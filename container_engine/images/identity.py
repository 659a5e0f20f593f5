"""The identity of a SquashFS file: the SHA-256 of its content, computed once and kept beside it.

IMAGE.sha256 has five lines: the digest of the image, that of its configuration or "-", the size and
modification time (ns) that the image had then, its inode and change time (ns), and a digest of
samples of its content. A launch reads only this file, and the samples if other content may have
been written with the old time. An image that a store keeps under its digest is never replaced, and
has three lines.
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
_SAMPLES, _SAMPLE = 16, 4096  # number of samples, and bytes in each


class Sums(NamedTuple):
    """The SHA-256 sums of an image and its configuration in hexadecimal; `config` may be "".

    `stamp` is the size and time that the image had, `change` its inode and change time, and
    `samples` are of its content; each is "" in files of earlier versions.
    """

    image: str
    config: str
    stamp: str = ""
    change: str = ""
    samples: str = ""

    def to_bytes(self) -> bytes:
        lines = [self.image, self.config or _NONE, self.stamp, self.change, self.samples]
        return "".join(f"{line}\n" for line in lines).encode()

    def fit(self, path: str) -> bool:
        """Check that these are the sums of the file as it is now. Raise OSError."""
        status = os.stat(path)
        if self.stamp != _stamp(status):
            return False
        # a file that was renamed or linked has the same content
        is_same = not self.change or self.change == _change(status)
        return is_same or self.samples == samples(path, status.st_size)


def known_digest(path: str) -> str:
    """Return the recorded digest of `path`, sha256:…; "" if there is none or the file changed."""
    try:
        found = sums(path)
        return f"sha256:{found.image}" if found is not None and found.fit(path) else ""
    except OSError:
        return ""


def has_changed(path: str) -> bool:
    """Check whether the content of `path` differs from the recorded digest. Raise OSError.

    The file is read only if it does not fit its record. Without a record the answer is no.
    """
    found = sums(path)
    if found is None or found.fit(path):
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
    """Record `digest` for `path`; `made` is where a store's file is that has not that name yet.

    Without `config`, the recorded digest of the configuration stays. Raise OSError.
    """
    if config is None:
        before = sums(path)
        of_config = before.config if before is not None else ""
    else:
        import hashlib

        of_config = hashlib.sha256(config).hexdigest()
    status = os.stat(made or path)
    found = Sums(digest.removeprefix("sha256:"), of_config, _stamp(status))
    if not made:
        found = found._replace(change=_change(status), samples=samples(path, status.st_size))
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
    image, config, *rest = (*lines, *[""] * 4)[:5]
    return Sums(image, "" if config == _NONE else config, *rest)


def samples(path: str, size: int) -> str:
    """Return a digest of parts of the content, from its beginning to its end. Raise OSError."""
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        for number in range(_SAMPLES):
            place = max(size - _SAMPLE, 0) * number // (_SAMPLES - 1)
            digest.update(os.pread(file.fileno(), _SAMPLE, place))
    return digest.hexdigest()


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


def _change(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_ctime_ns}"
