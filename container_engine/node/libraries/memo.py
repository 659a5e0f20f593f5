"""Remember what looking into an image for hooks came to, for the next start on this node.

Looking takes a process of Python that reads the loader's caches and dozens of libraries. Its result
follows from the request, the image's files, which are read-only, and those of the node's files that
it asked for. The request has the images' signatures, and all else is looked at again before the
result is used: a start for which anything differs looks into the image itself. The memo is a file
of the user's own for this node, and has only operations that the user could have the guard do
without it.
"""

from __future__ import annotations

import os
import stat
from binascii import crc32

from container_engine import __version__
from container_engine.node import file_signatures
from container_engine.node.libraries.links import Links
from container_engine.node.plan_json import parse_json, to_json
from container_engine.private_files import is_own, is_own_directory, publish_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, BinaryIO

    from container_engine.node.start.container import Operation

# beside the memos: what is written into images, mostly the loader's cache
_FILES = "files"
# of one user
_MOST, _MOST_FILES, _LONGEST = 16, 32, 1 << 20
_BOOT = "/proc/sys/kernel/random/boot_id"


def recall(directory: str, request: str) -> tuple[list[Operation], list[str]] | None:
    """Return the guard's operations, and the looks on which they depend.

    None if the result is not known or no longer right.
    """
    # the first of them is where anybody could have made it
    if not all(map(is_own_directory, (os.path.dirname(directory), directory))):
        return None
    try:
        memo = parse_json(_unsealed(_read(f"{directory}/{_name(request)}")))
        if memo["about"] != _about(request):
            return None
        if not file_signatures.are_unchanged(memo["looks"], Links().real):
            return None
        steps = [_operation(words) for words in memo["operations"]]
        named = {f"f{arguments[0]}" for name, arguments in steps if name == "root-copy"}
        for look in named:
            # whatever the look says of its owner: this is mounted into the container
            _own(look[1:]).close()
        # files that are named by their content cannot be too young
        return steps, [f"p{look[1:]}" if look in named else look for look in memo["looks"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _operation(words: Sequence[Any]) -> Operation:
    """Return an operation of a memo. Raise ValueError for what is none."""
    if not isinstance(words, list) or any(type(w) is not str or "\0" in w for w in words):
        raise ValueError("not an operation")
    name, *arguments = words
    return name, arguments


def remember(
    request: Mapping[str, Any],
    text: str,
    asked: Mapping[str, str],
    changes: Sequence[tuple[str, bytes | None]],
    operations: Sequence[Sequence[str]],
) -> None:
    """Write the memo, unless what it depends on cannot be judged. Failure is not an error.

    `asked` are looks at the node's files that the result depends on, and at the images, with
    what was there before they were read. `changes` have been made to the image: paths with the
    new content, or None for what was removed.
    """
    directory = request["memos"]
    try:
        if any(file_signatures.is_of_kernel(look[1:], "/dev/") for look in asked):
            return
        # what has changed since it was asked will not be recalled
        if not file_signatures.are_settled(asked):
            return
        files = os.path.join(os.path.dirname(directory), _FILES)
        steps = [_again(change, request["root"], files) for change in changes]
        named = [f"f{step[1]}" for step in steps if step[0] == "root-copy"]
        found = {**asked, **{look: file_signatures.signature(look) for look in named}}
        memo = {"about": _about(text), "looks": found, "operations": [*steps, *operations]}
        content = seal(to_json(memo)).encode()
        if len(content) <= _LONGEST:
            publish_private(directory, _name(text), content, _MOST)
    except (OSError, ValueError):
        return


def _again(change: tuple[str, bytes | None], root: str, files: str) -> list[str]:
    """Return the operation that makes a change, whose content all nodes have in one file."""
    path, content = change
    if content is None:
        return ["root-remove", root, path]
    from hashlib import sha256

    name = sha256(content).hexdigest()
    file = f"{files}/{name}"
    if not _has(file, content):
        publish_private(files, name, content, _MOST_FILES)
    return ["root-copy", file, root, path]


def _has(path: str, content: bytes) -> bool:
    """Check that a file is this user's alone and has this content, whatever its name says."""
    try:
        with _own(path) as file:
            return file.read(len(content) + 1) == content
    except (OSError, ValueError):
        return False


def seal(text: str) -> str:
    """Return a text with its checksum, which finds what a disk or an editor has done to a file."""
    return f"{crc32(text.encode()):08x}\n{text}"


def _unsealed(sealed: str) -> str:
    """Return the text that was sealed. Raise ValueError for one that has changed since."""
    text = sealed.partition("\n")[2]
    if seal(text) != sealed:
        raise ValueError("not what was written")
    return text


def _about(request: str) -> Mapping[str, str]:
    with open(_BOOT, encoding="ascii") as file:
        return {"version": __version__, "boot": file.read(), "request": request}


def _name(request: str) -> str:
    """Return the name of the file. Another request with that name only costs time."""
    return f"{crc32(os.fsencode(request)):08x}.{len(request)}"


def _read(path: str) -> str:
    """Read a file that is this user's alone, up to a limit. Raise OSError or ValueError."""
    with _own(path) as file:
        return file.read(_LONGEST).decode("ascii")


def _own(path: str) -> BinaryIO:
    """Open a file that is this user's alone. Raise OSError, ValueError for other files."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = open(fd, "rb")  # noqa: SIM115  # the caller closes it
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and is_own(found):
        return file
    file.close()
    raise ValueError("not this user's alone")
