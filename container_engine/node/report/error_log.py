"""Write the log of an error: all that the failed programs printed, for users who need details.

It is readable by its owner only, of bounded size, and without secrets as far as they can be
recognized. A log that cannot be written is not reported as an error.
"""

from __future__ import annotations

import os
import re
import sys

from container_engine import __version__
from container_engine.base.private_files import make_own
from container_engine.base.secrecy import HIDDEN, Secrecy
from container_engine.node.report.trace import open_own

MOST = 64 * 1024
# what programs print of the headers that they send to a registry
_HEADERS = re.compile(r"(?i)(authorization: *|bearer +|--creds[ =])[^\s\"']+( [^\s\"']+)?")
# a registry may redirect to a URL whose query alone grants access
_QUERY = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s?\"'<>]+\?)[^\s\"'<>]+")


def redacted(text: str) -> str:
    """Return the text with everything hidden that looks like a secret."""
    text = _HEADERS.sub(rf"\1{HIDDEN}", Secrecy().text(text))
    return _QUERY.sub(rf"\1{HIDDEN}", text)


def of_exception(error: Exception) -> str:
    """Return the traceback and, below it, the versions of the engine, Python and the kernel.

    They are last because a log keeps the end of a long text.
    """
    import traceback

    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    versions = f"ce {__version__}, Python {python}, {system.sysname} {system.release}"
    return f"{''.join(traceback.format_exception(error))}{versions} {system.machine}\n"


def keep(directory: str, name: str, text: str) -> str:
    """Write the end of `text` to a file and return its path, or "" if it cannot be written.

    The directory is created if necessary. It must be the user's alone, because it may be in /tmp.
    """
    if not text.strip():
        return ""
    content = redacted(text[-MOST:]).encode("utf-8", "replace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        make_own(directory)
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
