"""Change recorded answers, and write them with the right checksum, as the engine does."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
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


# ---- faults ------------------------------------------------------------------------------------


def fault(chance: Random, file: Path, other: Path) -> str:
    """Let one thing have happened to the file of an answer, and return what it is called.

    `other` is the file of an answer to another request. What starts next must not use `file`.
    """
    whole, kind = file.read_bytes(), chance.choice(_FAULTS)
    kind(chance, file, other)
    if kind not in (_owner, _mode) and file.read_bytes() == whole:
        # two answers may be the same from a byte on
        return fault(chance, file, other)
    return kind.__name__.strip("_")


def _bits(chance: Random, file: Path, _other: Path) -> None:
    content = bytearray(file.read_bytes())
    for at in chance.sample(range(len(content)), chance.choice((1, 1, 2, 30))):
        content[at] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def _cut(chance: Random, file: Path, _other: Path) -> None:
    os.truncate(file, chance.randrange(file.stat().st_size))


def _longer(chance: Random, file: Path, _other: Path) -> None:
    with file.open("ab") as opened:
        opened.write(chance.randbytes(chance.randint(1, 5000)))


def _hole(chance: Random, file: Path, _other: Path) -> None:
    """Lose a block, as a crash of the node before the disk has it does."""
    content = bytearray(file.read_bytes())
    begin = chance.randrange(len(content) // 512) * 512
    content[begin : begin + 512] = bytes(len(content[begin : begin + 512]))
    file.write_bytes(content)


def _half(chance: Random, file: Path, other: Path) -> None:
    """Have the beginning of one answer and the end of another one."""
    one, two = file.read_bytes(), other.read_bytes()
    at = chance.randrange(len(answers.MAGIC) + 8, min(len(one), len(two)) - 4)
    file.write_bytes(chance.choice((one[:at] + two[at:], two[:at] + one[at:])))


def _swapped(_chance: Random, file: Path, other: Path) -> None:
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def _copied(_chance: Random, file: Path, other: Path) -> None:
    file.write_bytes(other.read_bytes())


def _header(chance: Random, file: Path, _other: Path) -> None:
    """Be of another release, prefix, boot, host, user or group, with the right checksum."""
    answer = parsed(file)
    fields = answer.request.split(b"\0", 4)
    numbers = [i for i in range(4) for _letter in fields[i]]
    field = chance.choice(numbers)
    at = chance.randrange(len(fields[field]))
    letter = chance.choice(b"0123456789abcdef".replace(fields[field][at : at + 1], b""))
    fields[field] = fields[field][:at] + bytes([letter]) + fields[field][at + 1 :]
    write(file, answer._replace(request=b"\0".join(fields)))


def _witness(chance: Random, file: Path, _other: Path) -> None:
    """Be from a time at which something that was asked about was different.

    With another variable it would be right, for another step, and stay beside the next answer.
    """
    answer = parsed(file)
    question = chance.choice([name for name in answer.witnesses if name[0] != "v"])
    other = {question: f"{answer.witnesses[question]}1"}
    write(file, answer._replace(witnesses=answer.witnesses | other))


def _owner(_chance: Random, file: Path, _other: Path) -> None:
    os.chown(file, 65534, 65534)


def _mode(chance: Random, file: Path, _other: Path) -> None:
    file.chmod(0o600 | chance.choice((0o004, 0o020, 0o066)))


_FAULTS = (
    *(_bits, _cut, _longer, _hole, _half, _swapped, _copied, _header, _witness, _owner, _mode),
)
