"""Remember what looking into an image for hooks came to, for the next start on this node.

Looking takes a process of Python that reads the loader's caches and dozens of libraries. Its result
follows from the request, the image's files, which are read-only, and those of the node's files that
it asked for. All of them are looked at again before the result is used: a start for which anything
differs looks into the image itself. The memo is a file of the user's own for this node, and has
only operations that the user could have the guard do without it.
"""

from __future__ import annotations

import os
import stat
import time
from binascii import crc32

from container_engine import __version__
from container_engine.node.plan_json import parse_json, to_json
from container_engine.private_files import (
    forget_oldest,
    is_young,
    own_directory,
    signature,
    write_private,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from container_engine.node.start.container import Operation

_PLACE = ".cache/container-engine/libraries"
# of one user and node
_MOST, _LONGEST = 16, 4 << 20
_OTHERS = 0o077
_OF_KERNEL = ("/proc/", "/sys/", "/dev/")


def place(home: str) -> str:
    """Return this node's directory of such memos below a home, "" if there is no home."""
    return f"{home}/{_PLACE}/{os.uname().nodename}" if home.startswith("/") else ""


def recall(
    directory: str, images: Sequence[str], request: str
) -> tuple[list[Operation], list[str]] | None:
    """Return the guard's operations, and the paths that have been looked at.

    None if the result is not known or no longer right.
    """
    if not directory:
        return None
    try:
        memo = parse_json(_read(f"{directory}/{_name(images, request)}"))
        if memo["about"] != _about(images, request):
            return None
        if any(signature(path) != found for path, found in memo["looks"].items()):
            return None
        return [(name, arguments) for name, *arguments in memo["operations"]], [*memo["looks"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def remember(
    directory: str,
    images: Sequence[str],
    request: str,
    asked: Iterable[str],
    operations: Sequence[Sequence[str]],
) -> None:
    """Write the memo, unless what it depends on cannot be judged. Failure is not an error.

    `asked` are the node's files that the result depends on, directories included.
    """
    now = time.time_ns()
    paths = list(dict.fromkeys([*images, *asked]))
    if any(f"{os.path.normpath(path)}/".startswith(_OF_KERNEL) for path in paths):
        return
    try:
        looks = {path: signature(path) for path in paths}
        if any(is_young(path, now) or _leads_nowhere(path) for path in paths):
            return
        about = _about(images, request)
        text = to_json({"about": about, "looks": looks, "operations": operations})
        if len(text) > _LONGEST:
            return
        above, _slash, name = directory.rpartition("/")
        os.makedirs(os.path.dirname(above), 0o700, exist_ok=True)
        first = own_directory(above)
        try:
            here = own_directory(name, first)
        finally:
            os.close(first)
        try:
            at = f"/proc/self/fd/{here}"
            write_private(at, _name(images, request), text.encode())
            forget_oldest(at, _MOST)
        finally:
            os.close(here)
    except (OSError, ValueError):
        return


def _leads_nowhere(path: str) -> bool:
    """Check for a symlink that exists, and looks as if it did not."""
    return os.path.lexists(path) and not os.path.exists(path)


def escaped(content: bytes) -> str:
    """Return bytes as an argument for the guard, which cannot have NULs (root-write)."""
    text = content.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
    return text.decode("utf-8", "surrogateescape")


def _about(images: Sequence[str], request: str) -> Mapping[str, object]:
    return {"version": __version__, "images": [*images], "request": request}


def _name(images: Sequence[str], request: str) -> str:
    """Return the name of the file. Another request with that name only costs time."""
    key = "\0".join([*images, request])
    return f"{crc32(os.fsencode(key)):08x}.{len(key)}"


def _read(path: str) -> str:
    """Read a file that is this user's alone. Raise OSError or ValueError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ValueError("not this user's file")
        if found.st_mode & _OTHERS or found.st_size > _LONGEST:
            raise ValueError("not this user's alone")
        return file.readall().decode("ascii")
