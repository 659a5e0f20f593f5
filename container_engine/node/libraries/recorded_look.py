"""Record the result of looking into an image for hooks, for the next start on this node.

Looking takes a Python process that reads the loader's caches and dozens of libraries. Its result
depends on the request, on the image's files, which are read-only, and on files of the node. The
answer (base/answers.py) cannot give the user any power: users can have the guard execute all
operations that it contains.
"""

from __future__ import annotations

import os

from container_engine.base import answers
from container_engine.base.files import (
    is_own_directory,
    judge_own,
    open_place,
    publish_private,
    read_regular,
)
from container_engine.node.libraries.trees import Links
from container_engine.node.plan_json import parse_json, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from container_engine.node.container.description import Operation

# beside the answers: the files that are written into images, mostly the loader's cache
_FILES = "files"
# the most answers and files of one user
_MOST, _MOST_FILES = 16, 32


def recall(request: Mapping[str, Any], text: str) -> tuple[list[Operation], list[str]] | None:
    """Return the guard's operations, and the questions about files on which they depend.

    `text` is the `request` as it is written. Return None if there is no answer to it, or it is no
    longer right.
    """
    directory = request["answers"]
    # the directory above is in /var/tmp, where any user could have made it
    if not all(map(is_own_directory, (os.path.dirname(directory), directory))):
        return None
    try:
        found = answers.read(directory, _asked(request, text), Links().real)
        if found is None:
            return None
        steps = [_operation(words) for words in parse_json(found[1].decode("ascii"))]
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    named = {f"f{arguments[0]}" for name, arguments in steps if name == "root-copy"}
    # the content of files that are named after it does not change, even if they are young
    return steps, [f"p{question[1:]}" if question in named else question for question in found[0]]


def _operation(words: Sequence[Any]) -> Operation:
    """Return an operation of an answer. Raise ValueError for anything else."""
    if not isinstance(words, list) or any(type(w) is not str or "\0" in w for w in words):
        raise ValueError("not an operation")
    name, *arguments = words
    return name, arguments


def record(
    request: Mapping[str, Any],
    text: str,
    asked: Mapping[str, str],
    changes: Sequence[tuple[str, bytes | None]],
    operations: Sequence[Sequence[str]],
) -> None:
    """Write the answer, if all that it depends on can be checked later.

    `text` is the `request` as it arrived. `asked` are witnesses about the images and the node's
    files, with their states before they were read. `changes` were made to the image: paths with the
    new content, None for a removed file. An answer that cannot be written is not an error.
    """
    directory = request["answers"]
    try:
        if any(answers.is_of_kernel(question[1:], "/dev/") for question in asked):
            return
        files = os.path.join(os.path.dirname(directory), _FILES)
        steps = [_again(change, request["root"], files) for change in changes]
        result = to_json([*steps, *operations]).encode("ascii")
        witnesses = {**answers.installation(), **asked}
        if not answers.can_be_checked(witnesses):
            return
        named = [f"f{step[1]}" for step in steps if step[0] == "root-copy"]
        witnesses |= {question: answers.state(question) for question in named}
        answers.write(open_place(directory), _asked(request, text), witnesses, result, _MOST)
    except (OSError, ValueError):
        return


def _again(change: tuple[str, bytes | None], root: str, files: str) -> list[str]:
    """Return the operation that makes a change again, from a file that all answers share."""
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
        return read_regular(path, len(content), judge_own) == content
    except (OSError, ValueError):
        return False


def _asked(request: Mapping[str, Any], text: str) -> bytes:
    # in the container's namespaces the user has other ids
    return answers.request_of(request["prefix"], os.fsencode(text), ids=request["ids"])
