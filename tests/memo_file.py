"""Change the fields of memos, and write them with the right checksum, as the engine does."""

from collections.abc import Callable
from pathlib import Path

from container_engine.base import private_files


def fields_of(file: Path) -> bytes:
    """Return what follows the name of the format and the checksum."""
    return private_files.fields_of(_magic(file), file.read_bytes())


def write_fields(file: Path, fields: bytes) -> None:
    file.write_bytes(private_files.memo_of(_magic(file), fields))


def _magic(file: Path) -> bytes:
    magic, end, _rest = file.read_bytes().partition(b"\n")
    return magic + end


def rewrite(file: Path, change: Callable[[bytes], bytes]) -> None:
    fields = fields_of(file)
    changed = change(fields)
    assert changed != fields
    write_fields(file, changed)
