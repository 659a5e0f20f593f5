"""Remembers a plan, together with everything that it was made from, for `quick.py`.

The file holds expanded values, so it is private. A memo must never outlive what it was made from:
if that cannot be guaranteed, no memo is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import container_engine
from container_engine.private_files import forget_oldest, is_young, write_private
from container_engine.submit import quick

MAX_MEMOS = 64


class Recorder(Mapping[str, str]):
    """An environment that records each variable looked up and its value."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.asked: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        self.asked[name] = self._environment.get(name)
        return self._environment[name]

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            self.asked[name] = self._environment.get(name)
        return name in self._environment

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a plan must not depend on the whole environment")

    def __len__(self) -> int:
        raise TypeError("a plan must not depend on the whole environment")


class Memo(NamedTuple):
    """A plan as it is printed, and what it was made from.

    `files` are all paths that were examined, `environment` all variables. `started_ns` is a time
    before the first of them was read, by the clock of time.time_ns. `head` and `parts` are those of
    Prepared. The memo is valid until `not_after`, in seconds since 1970; 0 means without limit.
    """

    key: tuple[bytes, ...]
    files: tuple[str, ...]
    environment: Mapping[str, str | None]
    started_ns: int
    notices: str
    head: str
    parts: Sequence[str]
    not_after: float = 0


def key(name: str | None, cwd: str, prefix: str, words: Sequence[str] = ()) -> tuple[bytes, ...]:
    own = None if name is None else os.fsencode(name)
    return quick.key(own, os.fsencode(cwd), os.fsencode(prefix), [*map(os.fsencode, words)])


def remember(memo: Memo, environment: Mapping[str, str], uid: int) -> bool:
    """Write the memo and return whether that succeeded; failure is not an error."""
    names = [name for name in ("XDG_CACHE_HOME", "HOME") if name in environment]
    place = quick.directory({name.encode(): os.fsencode(environment[name]) for name in names})
    text = _encode(memo, uid)
    if place is None or text is None:
        return False
    try:
        os.makedirs(place, 0o700, exist_ok=True)
        if not quick.is_private_directory(place, uid):
            return False
        memos = os.fsdecode(place)
        write_private(memos, quick.file_name(memo.key), text)
        forget_oldest(memos, MAX_MEMOS)
    except OSError:
        return False
    return True


def _encode(memo: Memo, uid: int) -> bytes | None:
    """Return the text of the memo, or None if a further change of a file might go unnoticed.

    That is so for files changed too recently. A field that contains NUL also gives None.
    """
    paths = dict.fromkeys(map(os.fsencode, (container_engine.__file__, *memo.files)))
    signatures = {path: quick.signature(path) for path in paths}
    if any(is_young(os.fsdecode(path), memo.started_ns) for path in paths):
        return None
    variables = {
        os.fsencode(name): quick.variable(None if value is None else os.fsencode(value))
        for name, value in memo.environment.items()
    }
    fields = [container_engine.__version__.encode(), b"%d" % uid, *memo.key]
    fields.append(b"%d" % memo.not_after)
    for table in (signatures, variables):
        fields.append(b"%d" % len(table))
        fields.extend(field for pair in table.items() for field in pair)
    # printed text is UTF-8, whatever the encoding of file names
    printed = (memo.notices, memo.head, str(len(memo.parts)), *memo.parts)
    fields += [*(text.encode("utf-8", "surrogateescape") for text in printed), quick.END]
    if any(b"\0" in field for field in fields):
        return None
    return quick.MAGIC + b"".join(field + b"\0" for field in fields)
