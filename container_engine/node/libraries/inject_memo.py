"""Remember the result of looking into an image for hooks, for the next start on this node.

Looking takes a Python process that reads the loader's caches and dozens of libraries. Its result
depends on the request, on the image's files, which are read-only, and on files of the node. The
request has the images' signatures, and the signatures of the node's files are compared before the
result is used; if anything differs, the start looks into the image itself. The memo is a private
file of the user for this node. It cannot give the user any power: users can have the guard execute
all operations that it contains.
"""

from __future__ import annotations

import os
import stat
from binascii import crc32

from container_engine import __version__
from container_engine.base.private_files import (
    fields_of,
    is_own,
    is_own_directory,
    memo_of,
    publish_private,
)
from container_engine.node import file_signatures
from container_engine.node.libraries.links import Links
from container_engine.node.plan_json import parse_json, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, BinaryIO

    from container_engine.node.container.description import Operation

_MAGIC = b"ce-hooks 1\n"
# beside the memos: the files that are written into images, mostly the loader's cache
_FILES = "files"
# the most memos and files of one user, and the most bytes of a memo
_MOST, _MOST_FILES, _LONGEST = 16, 32, 1 << 20
# the key of the aspects in a memo's JSON
_ASPECTS = "looks"
_BOOT = "/proc/sys/kernel/random/boot_id"


def recall(directory: str, request: str) -> tuple[list[Operation], list[str]] | None:
    """Return the guard's operations, and the aspects of files on which they depend.

    Return None if there is no memo of this request, or it is no longer right.
    """
    # the directory above is in /var/tmp, where any user could have made it
    if not all(map(is_own_directory, (os.path.dirname(directory), directory))):
        return None
    try:
        memo = parse_json(fields_of(_MAGIC, _read(f"{directory}/{_name(request)}")).decode("ascii"))
        if memo["about"] != _about(request):
            return None
        if not file_signatures.are_unchanged(memo[_ASPECTS], Links().real):
            return None
        steps = [_operation(words) for words in memo["operations"]]
        named = {f"f{arguments[0]}" for name, arguments in steps if name == "root-copy"}
        for aspect in named:
            # the signature has no owner, and this file is mounted into the container
            _own(aspect[1:]).close()
        # the content of files that are named after it does not change, even if they are young
        return steps, [f"p{aspect[1:]}" if aspect in named else aspect for aspect in memo[_ASPECTS]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _operation(words: Sequence[Any]) -> Operation:
    """Return an operation of a memo. Raise ValueError for anything else."""
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
    """Write the memo, if all that it depends on can be checked later.

    `text` is the `request` as it arrived. `asked` are the aspects of the images and the node's
    files that the result depends on, with their signatures before they were read. `changes` were
    made to the image: paths with the new content, None for a removed file. A memo that cannot be
    written is not an error.
    """
    directory = request["memos"]
    try:
        if any(file_signatures.is_of_kernel(aspect[1:], "/dev/") for aspect in asked):
            return
        # `recall` notices a file that has changed since it was read, unless it is young
        if not file_signatures.are_settled(asked):
            return
        files = os.path.join(os.path.dirname(directory), _FILES)
        steps = [_again(change, request["root"], files) for change in changes]
        named = [f"f{step[1]}" for step in steps if step[0] == "root-copy"]
        found = {**asked, **{aspect: file_signatures.signature(aspect) for aspect in named}}
        memo = {"about": _about(text), _ASPECTS: found, "operations": [*steps, *operations]}
        content = memo_of(_MAGIC, to_json(memo).encode())
        if len(content) <= _LONGEST:
            publish_private(directory, _name(text), content, _MOST)
    except (OSError, ValueError):
        return


def _again(change: tuple[str, bytes | None], root: str, files: str) -> list[str]:
    """Return the operation that makes a change again, from a file that all memos share."""
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


def _about(request: str) -> Mapping[str, str]:
    with open(_BOOT, encoding="ascii") as file:
        return {"version": __version__, "boot": file.read(), "request": request}


def _name(request: str) -> str:
    """Return the file name of the memo.

    Two requests with the same name only cost time: the memo has the request, which is compared.
    """
    return f"{crc32(os.fsencode(request)):08x}.{len(request)}"


def _read(path: str) -> bytes:
    """Read a file that is this user's alone, up to a limit. Raise OSError or ValueError."""
    with _own(path) as file:
        return file.read(_LONGEST)


def _own(path: str) -> BinaryIO:
    """Open a file that is this user's alone. Raise OSError, ValueError for other files."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = open(fd, "rb")  # noqa: SIM115  # the caller closes it
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and is_own(found):
        return file
    file.close()
    raise ValueError("not this user's alone")
