"""Change recorded answers, and write them with the right checksum, as the engine does."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from container_engine.base import answers


class Answer(NamedTuple):
    """What an answer has: the request with its header, the witnesses and the result."""

    request: bytes
    witnesses: dict[str, str]
    result: bytes


def parsed(file: Path) -> Answer:
    content = file.read_bytes()
    size, _nul, rest = content[len(answers.MAGIC) + 9 :].partition(b"\0")
    request = rest[: int(size)]
    witnesses, result = answers._decoded(content, request)
    return Answer(request, dict(witnesses), result)


def write(file: Path, answer: Answer) -> None:
    file.write_bytes(answers._encoded(*answer))


def rewrite(file: Path, change: Callable[[Answer], Answer]) -> None:
    before = parsed(file)
    changed = change(before)
    assert changed != before
    write(file, changed)
