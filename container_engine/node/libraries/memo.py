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
    from typing import Any

    from container_engine.node.start.container import Operation

_PLACE = ".cache/container-engine/libraries/nodes"
# beside the directories of the nodes: what is written into images, mostly the loader's cache
_FILES = "files"
# memos of one user and node, files of one user
_MOST, _MOST_FILES, _LONGEST = 16, 64, 1 << 20
_OTHERS = 0o077
_OF_KERNEL = ("/proc/", "/sys/", "/dev/")


def place(home: str) -> str:
    """Return this node's directory of such memos below a home, "" if there is no home."""
    return f"{home}/{_PLACE}/{os.uname().nodename}" if home.startswith("/") else ""


def recall(
    directory: str, images: Sequence[str], request: str
) -> tuple[list[Operation], list[str]] | None:
    """Return the guard's operations, and what they depend on as start_memo.py looks at it.

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
        steps = [(name, arguments) for name, *arguments in memo["operations"]]
        # files that are named by their content cannot be too young
        named = {arguments[0] for name, arguments in steps if name == "root-copy"}
        return steps, [f"{'p' if path in named else 'f'}{path}" for path in memo["looks"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def remember(
    request: Mapping[str, Any],
    text: str,
    asked: Iterable[str],
    changes: Sequence[tuple[str, bytes | None]],
    operations: Sequence[Sequence[str]],
) -> None:
    """Write the memo, unless what it depends on cannot be judged. Failure is not an error.

    `asked` are the node's files that the result depends on, directories included. `changes` have
    been made to the image: paths with the new content, or None for what was removed.
    """
    now = time.time_ns()
    directory, images = request["memos"], request["images"]
    paths = list(dict.fromkeys([*images, *asked]))
    if any(f"{os.path.normpath(path)}/".startswith(_OF_KERNEL) for path in paths):
        return
    try:
        looks = {path: signature(path) for path in paths}
        if any(is_young(path, now) or _leads_nowhere(path) for path in paths):
            return
        files = os.path.join(os.path.dirname(os.path.dirname(directory)), _FILES)
        steps = [_again(change, request["root"], files) for change in changes]
        looks |= {step[1]: signature(step[1]) for step in steps if step[0] == "root-copy"}
        memo = {"about": _about(images, text), "looks": looks, "operations": [*steps, *operations]}
        content = to_json(memo).encode()
        if len(content) <= _LONGEST:
            _publish(directory, _name(images, text), content, _MOST)
    except (OSError, ValueError):
        return


def _again(change: tuple[str, bytes | None], root: str, files: str) -> list[str]:
    """Return the operation that makes a change, whose content all nodes have in one file."""
    path, content = change
    if content is None:
        return ["root-remove", root, path]
    from hashlib import sha256

    source = f"{files}/{sha256(content).hexdigest()}"
    if not os.path.exists(source):
        _publish(files, os.path.basename(source), content, _MOST_FILES)
    return ["root-copy", source, root, path]


def _publish(directory: str, name: str, content: bytes, most: int) -> None:
    """Write a file into a directory that is this user's alone, as are those above it."""
    above, _slash, last = directory.rpartition("/")
    os.makedirs(os.path.dirname(above), 0o700, exist_ok=True)
    first = own_directory(above)
    try:
        here = own_directory(last, first)
    finally:
        os.close(first)
    try:
        at = f"/proc/self/fd/{here}"
        write_private(at, name, content)
        forget_oldest(at, most)
    finally:
        os.close(here)


def _leads_nowhere(path: str) -> bool:
    """Check for a symlink that exists, and looks as if it did not."""
    return os.path.lexists(path) and not os.path.exists(path)


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
