"""The log of an error: all that others printed, for who wants more than the line.

Readable by its owner only, of bounded size, without what looks like a secret. That there is no
place for a log is never an error of its own.
"""

from __future__ import annotations

import os
import re

from container_engine.node.report.trace import open_own
from container_engine.secrecy import HIDDEN, Secrecy

MOST = 64 * 1024
# what programs print of what they send to a registry
_HEADERS = re.compile(r"(?i)(authorization: *|bearer +|--creds[ =])[^\s\"']+( [^\s\"']+)?")
# a registry may redirect to a URL whose query is all that one needs
_QUERY = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s?\"'<>]+\?)[^\s\"'<>]+")


def redacted(text: str) -> str:
    """The text without what looks like a secret, also where nobody knows that it is one."""
    text = _HEADERS.sub(rf"\1{HIDDEN}", Secrecy().text(text))
    return _QUERY.sub(rf"\1{HIDDEN}", text)


def keep(directory: str, name: str, text: str) -> str:
    """Writes the end of `text` to a file of this name and returns its path; "" where it cannot.

    The directory is made if need be and must be the user's alone: it may lie in /tmp.
    """
    if not text.strip():
        return ""
    content = redacted(text[-MOST:]).encode("utf-8", "replace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        place = open_own(directory)
    except OSError:
        return ""
    try:
        with open(os.open(name, flags, 0o600, dir_fd=place), "wb") as file:
            file.write(content)
    except OSError:
        return ""
    finally:
        os.close(place)
    return f"{directory}/{name}"


def forget_old(directory: str, kept: int) -> None:
    """Removes all but the newest files, by their names."""
    try:
        for name in sorted(os.listdir(directory))[:-kept]:
            os.unlink(f"{directory}/{name}")
    except OSError:
        return
