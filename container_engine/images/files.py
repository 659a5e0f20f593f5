"""Files that appear whole, and directories that do not stay."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def publish(path: str, content: bytes) -> None:
    """`path` has its old content or the new one, never a part. Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    draft = f"{path}.{socket.gethostname()}.{os.getpid()}"
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


@contextlib.contextmanager
def fresh_directory(path: str) -> Iterator[str]:
    """An empty directory, gone afterwards. What a killed process left there is removed."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path, mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
