"""Change the fields of memos, and write them with the right checksum, as the engine does."""

from collections.abc import Callable
from pathlib import Path

from container_engine.private_files import memo_of

_CHECKSUM = 8  # digits


def fields_of(file: Path) -> bytes:
    """Return what follows the name of the format and the checksum."""
    return file.read_bytes().partition(b"\n")[2][_CHECKSUM + 1 :]


def write_fields(file: Path, fields: bytes) -> None:
    magic, end, _rest = file.read_bytes().partition(b"\n")
    file.write_bytes(memo_of(magic + end, fields))


def rewrite(file: Path, change: Callable[[bytes], bytes]) -> None:
    fields = fields_of(file)
    changed = change(fields)
    assert changed != fields
    write_fields(file, changed)
