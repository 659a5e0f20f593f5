"""Remembers a plan, together with everything that it was made from.

`ce-start` reads it and decides whether it is still valid (spank_plugin/start/plan_memo.c, with the
format in plan_memo.h). The file holds expanded values, so it is private. A memo must never outlive
what it was made from: if that cannot be guaranteed, no memo is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import container_engine
from container_engine.base.ownership import code_in_use
from container_engine.base.private_files import (
    OTHERS_WRITE,
    fingerprint,
    forget_oldest,
    is_own_directory,
    is_young,
    make_own,
    memo_of,
    write_private,
)

MAX_MEMOS = 64
_MAGIC = b"container-engine plan memo 8\n"
_UNSET, _END = b"-", b"end"


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
    `prepare.Prepared`. The memo is valid until `not_after`, in seconds since 1970; 0 is no limit.
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
    """Return the key of a request; different requests have different keys."""
    options = b"".join(b"%d:%s" % (len(word), word) for word in map(os.fsencode, words))
    return _variable(name), os.fsencode(cwd), os.fsencode(prefix), options


def remember(memo: Memo, environment: Mapping[str, str], uid: int) -> bool:
    """Write the memo and return whether that succeeded; failure is not an error."""
    place, text = _directory(environment), _encode(memo, uid)
    if place is None or text is None:
        return False
    try:
        make_own(place)
        if not is_own_directory(place, OTHERS_WRITE):
            return False
        # a collision only costs time: the memo holds the whole key
        write_private(place, fingerprint(b"\0".join(memo.key)), text)
        forget_oldest(place, MAX_MEMOS)
    except OSError:
        return False
    return True


def _directory(environment: Mapping[str, str]) -> str | None:
    """Return the directory of this user's memos, or None if the environment names no place."""
    cache = environment.get("XDG_CACHE_HOME", "")
    if not cache.startswith("/"):
        home = environment.get("HOME", "")
        if not home.startswith("/"):
            return None
        cache = f"{home}/.cache"
    return f"{cache}/container-engine/plans"


def _encode(memo: Memo, uid: int) -> bytes | None:
    """Return the memo as bytes, or None if a further change of a file might go unnoticed.

    That is so for a file that changed too recently. A field that contains NUL also gives None.
    """
    paths = dict.fromkeys(map(os.fsencode, (*code_in_use(), *memo.files)))
    signatures = {path: _signature(path) for path in paths}
    if any(is_young(os.fsdecode(path), memo.started_ns) for path in paths):
        return None
    variables = {os.fsencode(name): _variable(value) for name, value in memo.environment.items()}
    fields = [container_engine.__version__.encode(), b"%d" % uid, *memo.key]
    fields.append(b"%d" % memo.not_after)
    for table in (signatures, variables):
        fields.append(b"%d" % len(table))
        fields.extend(field for pair in table.items() for field in pair)
    # printed text is UTF-8, whatever the encoding of file names
    printed = (memo.notices, memo.head, str(len(memo.parts)), *memo.parts)
    fields += [*(text.encode("utf-8", "surrogateescape") for text in printed), _END]
    if any(b"\0" in field for field in fields):
        return None
    return memo_of(_MAGIC, b"".join(field + b"\0" for field in fields))


def _signature(path: bytes) -> bytes:
    """Return bytes that change with the state of a file, even if it is absent or inaccessible.

    They leave out the device number: a network file system has a different one on each host.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        return b"errno %d" % (error.errno or 0)
    except ValueError:
        return b"impossible"
    return b"%d %d %d %d" % (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _variable(value: str | None) -> bytes:
    return _UNSET if value is None else b"=" + os.fsencode(value)
