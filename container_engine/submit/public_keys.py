"""Reads the public key files that environments name."""

from __future__ import annotations

import os
import stat

from container_engine.plan.public_key import MAX_SIZE, Judged, judge
from container_engine.process import reason


def read_key(path: str) -> Judged:
    """Return the public key in a file, or the reason why a login cannot use it."""
    try:
        # opening a FIFO would block
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                return Judged(None, f"'{path}' is not a regular file")
            content = f.read(MAX_SIZE + 1)
    except OSError as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else reason(error)
        hint = "make one with ssh-keygen, and name the file that ends with .pub"
        return Judged(None, f"'{path}': {why}", hint)
    if len(content) > MAX_SIZE:
        return Judged(None, f"'{path}' has more than {MAX_SIZE} bytes, expected one public key")
    return judge(path, content)
