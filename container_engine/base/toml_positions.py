"""Finds the line of each key and each array item of a TOML text.

The standard library's parser returns values but no lines. This scanner runs before it, and so also
limits what the parser must handle. It understands just enough of TOML to walk from key to key. It
never judges, and stops silently where the text is not TOML, because the real parser reports that.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from container_engine.base.errors import UserError

Path = tuple["str | int", ...]
# The full path of a key or table, its line, and whether it is a [table].
Statement = tuple[Path, int, bool]

# More than any user writes, few enough for the parser's stack and for linear time.
MAX_DEPTH = 32
# Patterns are kept as text: most files need few of them compiled.
_BARE = r"[A-Za-z0-9_-]+"
_BLANKS = r"[ \t]*"
_BETWEEN = r"(?:[ \t\r\n]++|#[^\n]*+)*"
_SCALAR = r"[^,\]}\n#]*+"
# Strings by how they begin; two quotes may precede the three that close.
_STRINGS = {
    '"': r'"(?:[^"\\\n]++|\\[^\n])*"',
    "'": r"'[^'\n]*+'",
    '"""': r'"{3}(?:[^"\\]++|\\[\s\S]|"(?!""))*"{3,5}',
    "'''": r"'{3}(?:[^']++|'(?!''))*'{3,5}",
}


class TooDeepError(UserError):
    """Keys or values nested more than MAX_DEPTH levels deep, at `line`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"nested more than {MAX_DEPTH} levels deep", see="edf-too-large")
        self.line = line


class Fault(NamedTuple):
    """A fault of an administrator's file; `key` is "" if it does not concern a single key."""

    file: str
    message: str
    hint: str | None = None
    key: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class _NotTomlError(Exception):
    pass


class Positions:
    """The lines of paths such as ("mounts", 1) or ("env", "HOME"), counted from 1.

    Raise TooDeepError.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._lines: dict[Path, int] = {}
        self._statements: list[Statement] = []
        self._dotted: set[Path] = set()
        self._open: Path | None = None
        self._counted = 0
        self._line = 1
        self._tables: dict[Path, int] = {}
        with suppress(_NotTomlError):  # the lines so far are right; the parser reports the error
            self._document()

    def line(self, path: Path) -> int:
        """Return the line of the path, else that of its nearest known parent, else 1."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def last_statement(self, line: int) -> Statement | None:
        """Return the last statement that begins on this line or above it."""
        return next((s for s in reversed(self._statements) if s[1] <= line), None)

    def is_open_array(self, path: Path) -> bool:
        """Check whether the scan ended inside the array that is the value of this key."""
        return self._open is not None and self._open[: len(path)] == path

    def begun_by_dots(self, path: Path) -> bool:
        """Check whether a table was first mentioned in a dotted key, `a.b = …`, not as `[a]`."""
        return path in self._dotted

    def _document(self) -> None:
        table: Path = ()
        while self._skip():
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table, 0)

    def _header(self) -> Path:
        line = self._here()
        self._pos += 1
        is_array = self._peek() == "["
        self._pos += is_array
        path: Path = tuple(self._key())
        self._expect("]")
        if is_array:
            self._expect("]")
            index = self._tables.get(path, 0)
            self._tables[path] = index + 1
            self._lines.setdefault(path, line)
            path = (*path, index)
        self._lines.setdefault(path, line)
        self._statements.append((path, line, True))
        return path

    def _pair(self, table: Path, depth: int) -> None:
        line = self._here()
        path = (*table, *self._key())
        self._expect("=")
        if depth == 0:
            self._statements.append((path, line, False))
        self._lines.setdefault(path, line)
        for end in range(len(table) + 1, len(path)):
            if path[:end] not in self._lines:
                self._lines[path[:end]] = line
                self._dotted.add(path[:end])
        self._take(_BLANKS)
        self._value(path, depth)

    def _key(self) -> list[str]:
        parts = [self._key_part()]
        self._take(_BLANKS)
        while self._peek() == ".":
            if len(parts) == MAX_DEPTH:
                raise TooDeepError(self._here())
            self._pos += 1
            parts.append(self._key_part())
            self._take(_BLANKS)
        return parts

    def _key_part(self) -> str:
        self._take(_BLANKS)
        if (quote := self._peek()) in ('"', "'"):
            return _unquoted(self._take(_STRINGS[quote]))
        return self._take(_BARE)

    def _value(self, path: Path, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise TooDeepError(self._here())
        first = self._peek()
        if first in ('"', "'"):
            three = self._text[self._pos : self._pos + 3]
            self._take(_STRINGS.get(three, _STRINGS[first]))
        elif first == "[":
            self._array(path, depth + 1)
        elif first == "{":
            self._inline_table(path, depth + 1)
        else:
            self._take(_SCALAR)

    def _array(self, path: Path, depth: int) -> None:
        self._pos += 1
        index = 0
        self._open = path
        while self._skip() and self._peek() != "]":
            self._lines[*path, index] = self._here()
            self._value((*path, index), depth)
            self._skip()
            if self._peek() != "]":
                self._expect(",")
            index += 1
        self._expect("]")
        self._open = path[:-1] if depth > 1 else None

    def _inline_table(self, path: Path, depth: int) -> None:
        self._pos += 1
        while self._skip() and self._peek() != "}":
            self._pair(path, depth)
            self._skip()
            if self._peek() != "}":
                self._expect(",")
        self._expect("}")

    def _peek(self) -> str:
        return self._text[self._pos : self._pos + 1]

    def _expect(self, char: str) -> None:
        self._take(_BLANKS)
        if self._peek() != char:
            raise _NotTomlError
        self._pos += 1

    def _take(self, pattern: str) -> str:
        found = re.compile(pattern).match(self._text, self._pos)
        if found is None:
            raise _NotTomlError
        self._pos = found.end()
        return found[0]

    def _skip(self) -> bool:
        """Skip blanks, line ends and comments; return False at the end of the text."""
        self._take(_BETWEEN)
        return self._pos < len(self._text)

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._pos)
        self._counted = self._pos
        return self._line


def place_of(file: str, path: Path) -> str:
    """Return FILE:LINE of a key, or of its table if it is absent; FILE if that cannot be read."""
    try:
        with open(file, encoding="utf-8") as opened:
            line = Positions(opened.read()).line(path)
    except (OSError, ValueError, UserError):
        return file
    return f"{file}:{line}"


def _unquoted(raw: str) -> str:
    if raw[0] == "'" or "\\" not in raw:
        return raw[1:-1]
    import tomllib

    try:
        return str(tomllib.loads(f"key = {raw}")["key"])
    except tomllib.TOMLDecodeError as error:
        raise _NotTomlError from error
